#include <cusparse.h>
#include <dlfcn.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cuda/cusparse.h"

namespace tensorlightning::cuda {
namespace {

// The functions that are needed, under the names of cusparse.h.
struct Library {
  decltype(&::cusparseCreate) create;
  decltype(&::cusparseDestroy) destroy;
  decltype(&::cusparseSetStream) set_stream;
  decltype(&::cusparseGetErrorString) error_string;
  decltype(&::cusparseCreateDnMat) create_dense;
  decltype(&::cusparseDestroyDnMat) destroy_dense;
  decltype(&::cusparseCreateCsr) create_csr;
  decltype(&::cusparseCreateCoo) create_coo;
  decltype(&::cusparseDestroySpMat) destroy_sparse;
  decltype(&::cusparseSpMatGetSize) size_of;
  decltype(&::cusparseCsrSetPointers) set_csr;
  decltype(&::cusparseCooSetPointers) set_coo;
  decltype(&::cusparseDenseToSparse_bufferSize) buffer_size;
  decltype(&::cusparseDenseToSparse_analysis) analyse;
  decltype(&::cusparseDenseToSparse_convert) convert;
};

Result<Library> Open() {
  constexpr const char* kName = "libcusparse.so.12";
  void* const handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Error{ErrorCode::kUnavailable,
                 std::string("cuSPARSE can't be opened: ") + dlerror()};
  }
  Library library{};
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        dlsym(handle, name));
    if (function == nullptr) missing = name;
  };
  find(library.create, "cusparseCreate");
  find(library.destroy, "cusparseDestroy");
  find(library.set_stream, "cusparseSetStream");
  find(library.error_string, "cusparseGetErrorString");
  find(library.create_dense, "cusparseCreateDnMat");
  find(library.destroy_dense, "cusparseDestroyDnMat");
  find(library.create_csr, "cusparseCreateCsr");
  find(library.create_coo, "cusparseCreateCoo");
  find(library.destroy_sparse, "cusparseDestroySpMat");
  find(library.size_of, "cusparseSpMatGetSize");
  find(library.set_csr, "cusparseCsrSetPointers");
  find(library.set_coo, "cusparseCooSetPointers");
  find(library.buffer_size, "cusparseDenseToSparse_bufferSize");
  find(library.analyse, "cusparseDenseToSparse_analysis");
  find(library.convert, "cusparseDenseToSparse_convert");
  if (!missing.empty()) {
    return Error{ErrorCode::kUnavailable,
                 std::string(kName) + " lacks " + missing};
  }
  return library;
}

// Opened once; what went wrong is remembered too.
const Result<Library>& Cusparse() {
  static const Result<Library> library = Open();
  return library;
}

// The first failure is kept, and nothing is called after it.
class Calls {
 public:
  explicit Calls(const Library& library) : library_(library) {}

  template <typename Call>
  void operator()(const char* what, Call call) {
    if (!status_.ok()) return;
    const cusparseStatus_t code = call();
    if (code == CUSPARSE_STATUS_SUCCESS) return;
    status_ =
        Error{ErrorCode::kUnavailable, std::string("cuSPARSE, ") + what + ": " +
                                           library_.error_string(code)};
  }
  void Add(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  const Library& library_;
  Status status_ = Done{};
};

// cuSPARSE's objects, destroyed in reverse order.
struct Objects {
  explicit Objects(const Library& from) : library(from) {}
  ~Objects() {
    if (sparse != nullptr) library.destroy_sparse(sparse);
    if (dense != nullptr) library.destroy_dense(dense);
    if (handle != nullptr) library.destroy(handle);
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;

  const Library& library;
  cusparseHandle_t handle = nullptr;
  cusparseDnMatDescr_t dense = nullptr;
  cusparseSpMatDescr_t sparse = nullptr;
};

void Create(Objects& made, Calls& call, const float* dense, int64_t rows,
            int64_t columns, SparseMatrix& result, cudaStream_t stream) {
  const Library& library = made.library;
  call("create", [&] { return library.create(&made.handle); });
  call("stream", [&] { return library.set_stream(made.handle, stream); });
  call("dense matrix", [&] {
    return library.create_dense(&made.dense, rows, columns, columns,
                                const_cast<float*>(dense), CUDA_R_32F,
                                CUSPARSE_ORDER_ROW);
  });
  call("sparse matrix", [&] {
    return result.format == SparseFormat::kCsr
               ? library.create_csr(&made.sparse, rows, columns, 0,
                                    result.rows.get(), nullptr, nullptr,
                                    CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                    CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F)
               : library.create_coo(&made.sparse, rows, columns, 0, nullptr,
                                    nullptr, nullptr, CUSPARSE_INDEX_32I,
                                    CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F);
  });
}

void Convert(Objects& made, Calls& call, SparseMatrix& result) {
  const Library& library = made.library;
  constexpr auto kHow = CUSPARSE_DENSETOSPARSE_ALG_DEFAULT;
  size_t bytes = 0;
  call("buffer size", [&] {
    return library.buffer_size(made.handle, made.dense, made.sparse, kHow,
                               &bytes);
  });
  DeviceBuffer<std::byte> buffer;
  call.Add(buffer.Reserve(bytes + 1));
  call("analysis", [&] {
    return library.analyse(made.handle, made.dense, made.sparse, kHow,
                           buffer.get());
  });
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t nonzeros = 0;
  call("size", [&] {
    return library.size_of(made.sparse, &rows, &columns, &nonzeros);
  });
  result.nonzeros = static_cast<size_t>(nonzeros);
  if (result.format == SparseFormat::kCoo) {
    call.Add(result.rows.Reserve(result.nonzeros + 1));
  }
  call.Add(result.columns.Reserve(result.nonzeros + 1));
  call.Add(result.values.Reserve(result.nonzeros + 1));
  call("pointers", [&] {
    return result.format == SparseFormat::kCsr
               ? library.set_csr(made.sparse, result.rows.get(),
                                 result.columns.get(), result.values.get())
               : library.set_coo(made.sparse, result.rows.get(),
                                 result.columns.get(), result.values.get());
  });
  call("conversion", [&] {
    return library.convert(made.handle, made.dense, made.sparse, kHow,
                           buffer.get());
  });
}

}  // namespace

Result<SparseMatrix> DenseToSparse(const float* dense, int64_t rows,
                                   int64_t columns, SparseFormat format,
                                   cudaStream_t stream) {
  if (rows < 0 || columns < 0 || rows > INT32_MAX || columns > INT32_MAX) {
    return Error{ErrorCode::kInvalidArgument,
                 "a matrix of " + std::to_string(rows) + " x " +
                     std::to_string(columns) + " has no 32-bit indices"};
  }
  int devices = 0;
  Status status = ToStatus(cudaGetDeviceCount(&devices), "CUDA");
  if (!status.ok()) return status.error();
  if (devices == 0) return Error{ErrorCode::kUnavailable, "CUDA: no device"};
  const Result<Library>& library = Cusparse();
  if (!library.ok()) return library.error();

  SparseMatrix result;
  result.format = format;
  if (format == SparseFormat::kCsr) {
    status = result.rows.Reserve(static_cast<size_t>(rows) + 1);
    if (!status.ok()) return status.error();
  }
  Objects made(*library);
  Calls call(*library);
  Create(made, call, dense, rows, columns, result, stream);
  Convert(made, call, result);
  call.Add(ToStatus(cudaStreamSynchronize(stream), "conversion"));
  if (!call.status().ok()) return call.status().error();
  return Result<SparseMatrix>(std::move(result));
}

}  // namespace tensorlightning::cuda
