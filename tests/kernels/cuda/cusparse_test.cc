#include "kernels/cuda/cusparse.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace tensorlightning::cuda {
namespace {

bool HasDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

bool IsLoaded(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  const std::string all{std::istreambuf_iterator<char>(maps), {}};
  return all.find(library) != std::string::npos;
}

TEST(Cusparse, ConvertsOrSaysThatThereIsNoDevice) {
  if (!HasDevice()) {
    std::cout << "NOT TESTED on a GPU: this machine has none\n";
    const auto matrix =
        DenseToSparse(nullptr, 2, 3, SparseFormat::kCsr, nullptr);
    ASSERT_FALSE(matrix.ok());
    EXPECT_EQ(matrix.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(matrix.error().message.rfind("CUDA: ", 0), 0u)
        << matrix.error().message;
    EXPECT_FALSE(IsLoaded("libcusparse"))
        << "163 MB should not be loaded for nothing";
    return;
  }
  const std::vector<float> dense = {0, 1, 0, 2, 0, 3};
  DeviceBuffer<float> memory;
  ASSERT_TRUE(memory.Reserve(dense.size()).ok());
  cudaMemcpy(memory.get(), dense.data(), dense.size() * sizeof(float),
             cudaMemcpyHostToDevice);
  const auto matrix =
      DenseToSparse(memory.get(), 2, 3, SparseFormat::kCsr, nullptr);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  ASSERT_EQ(matrix->nonzeros, 3u);
  std::vector<int32_t> rows(3);
  std::vector<int32_t> columns(3);
  std::vector<float> values(3);
  cudaMemcpy(rows.data(), matrix->rows.get(), 12, cudaMemcpyDeviceToHost);
  cudaMemcpy(columns.data(), matrix->columns.get(), 12, cudaMemcpyDeviceToHost);
  cudaMemcpy(values.data(), matrix->values.get(), 12, cudaMemcpyDeviceToHost);
  EXPECT_EQ(rows, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(columns, (std::vector<int32_t>{1, 0, 2}));
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
}

TEST(Cusparse, RefusesMatricesThatDontFit32BitIndices) {
  const auto matrix =
      DenseToSparse(nullptr, int64_t{1} << 40, 1, SparseFormat::kCoo, nullptr);
  ASSERT_FALSE(matrix.ok());
  EXPECT_EQ(matrix.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tensorlightning::cuda
