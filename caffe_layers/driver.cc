#include "caffe_layers/driver.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>

#include "caffe_layers/driven_solver.h"
#include "caffe_layers/ending.h"

struct tl_caffe_solver {
  tensorlightning::DrivenSolver driven;
};

namespace tensorlightning {
namespace {

// Once for the process: before this, reasons end it.
void BeginOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    SetEnding(
        [](const std::string& reason) { throw std::runtime_error(reason); });
    // Caffe has much to say about every layer. GLOG_minloglevel=0 lets it.
    if (std::getenv("GLOG_minloglevel") == nullptr) {
      FLAGS_minloglevel = google::GLOG_WARNING;
    }
    FLAGS_logtostderr = true;
  });
}

// What `work` throws as a sentence. Nothing may pass into C.
template <typename Work>
int Try(char* error, size_t error_size, Work work) {
  std::string reason;
  try {
    BeginOnce();
    work();
    return 0;
  } catch (const std::exception& thrown) {
    reason = thrown.what();
  } catch (...) {
    reason = "an exception of an unknown kind";
  }
  std::snprintf(error, error_size, "%s", reason.c_str());
  return -1;
}

constexpr int kNone = 1;

int Describe(const std::string& name, int index, caffe::Blob<float>& blob,
             tl_caffe_array* array) {
  array->name = name.c_str();
  array->index = index;
  array->axes = blob.num_axes();
  std::copy(blob.shape().begin(), blob.shape().end(), array->shape);
  array->data = blob.mutable_cpu_data();
  return 0;
}

}  // namespace
}  // namespace tensorlightning

using tensorlightning::Describe;
using tensorlightning::kNone;
using tensorlightning::Try;

int tl_caffe_check(const char* solver_text, const char* net_text, int test,
                   char* error, size_t error_size) {
  return Try(error, error_size, [&] {
    tensorlightning::CheckSolver(solver_text, net_text, test != 0);
  });
}

tl_caffe_solver* tl_caffe_create(const char* solver_text, const char* net_text,
                                 int alone, char* error, size_t error_size) {
  tl_caffe_solver* solver = nullptr;
  Try(error, error_size, [&] {
    solver = new tl_caffe_solver{{solver_text, net_text, alone != 0}};
  });
  return solver;
}

int tl_caffe_create_test(tl_caffe_solver* solver, char* error,
                         size_t error_size) {
  return Try(error, error_size, [&] { solver->driven.CreateTest(); });
}

int tl_caffe_feed(tl_caffe_solver* solver, int test, const char* layer,
                  const float* data, const float* labels, int64_t count,
                  char* error, size_t error_size) {
  return Try(error, error_size, [&] {
    solver->driven.Feed(test != 0, layer, data, labels, count);
  });
}

int tl_caffe_step(tl_caffe_solver* solver, int iterations, double* loss,
                  char* error, size_t error_size) {
  return Try(error, error_size,
             [&] { *loss = solver->driven.Step(iterations); });
}

void tl_caffe_interrupt(tl_caffe_solver* solver, int on) {
  solver->driven.Interrupt(on != 0);
}

int tl_caffe_iteration(const tl_caffe_solver* solver) {
  return solver->driven.iteration();
}

int tl_caffe_join(tl_caffe_solver* solver, int iteration, char* error,
                  size_t error_size) {
  return Try(error, error_size, [&] { solver->driven.Join(iteration); });
}

const char* tl_caffe_statistics(tl_caffe_solver* solver) {
  return solver->driven.Statistics();
}

int tl_caffe_forward_test(tl_caffe_solver* solver, char* error,
                          size_t error_size) {
  return Try(error, error_size, [&] { solver->driven.ForwardTest(); });
}

int tl_caffe_parameter(tl_caffe_solver* solver, int number,
                       tl_caffe_array* array) {
  const caffe::Net<float>& net = *solver->driven.net(false);
  for (size_t l = 0; l < net.layers().size(); ++l) {
    const auto& blobs = net.layers()[l]->blobs();
    const int count = static_cast<int>(blobs.size());
    if (number < count) {
      return Describe(net.layer_names()[l], number,
                      *blobs[static_cast<size_t>(number)], array);
    }
    number -= count;
  }
  return kNone;
}

int tl_caffe_input(tl_caffe_solver* solver, int test, int number,
                   tl_caffe_array* array) {
  const tensorlightning::NetInputs* const inputs =
      solver->driven.inputs(test != 0);
  if (inputs == nullptr || number >= static_cast<int>(inputs->all().size())) {
    return kNone;
  }
  const tensorlightning::NetInput& input =
      inputs->all()[static_cast<size_t>(number)];
  *array = {input.layer.c_str(),
            0,
            4,
            {input.memory->batch_size(), input.memory->channels(),
             input.memory->height(), input.memory->width()},
            nullptr};
  return 0;
}

int tl_caffe_output(tl_caffe_solver* solver, int test, int number,
                    tl_caffe_array* array) {
  caffe::Net<float>* const net = solver->driven.net(test != 0);
  if (net == nullptr || number >= net->num_outputs()) return kNone;
  const auto blob = static_cast<size_t>(
      net->output_blob_indices()[static_cast<size_t>(number)]);
  return Describe(net->blob_names()[blob], 0, *net->blobs()[blob], array);
}

int tl_caffe_blob(tl_caffe_solver* solver, int test, const char* name,
                  tl_caffe_array* array) {
  caffe::Net<float>* const net = solver->driven.net(test != 0);
  if (net == nullptr) return kNone;
  for (size_t b = 0; b < net->blobs().size(); ++b) {
    if (net->blob_names()[b] == name) {
      return Describe(net->blob_names()[b], 0, *net->blobs()[b], array);
    }
  }
  return kNone;
}

int tl_caffe_snapshot(tl_caffe_solver* solver, const char* path, char* error,
                      size_t error_size) {
  return Try(error, error_size, [&] { solver->driven.Snapshot(path); });
}

int tl_caffe_finish(tl_caffe_solver* solver, char* error, size_t error_size) {
  return Try(error, error_size, [&] { solver->driven.Finish(); });
}

int tl_caffe_close(tl_caffe_solver* solver, char* error, size_t error_size) {
  return Try(error, error_size, [&] { solver->driven.Close(); });
}

void tl_caffe_free(tl_caffe_solver* solver) { delete solver; }
