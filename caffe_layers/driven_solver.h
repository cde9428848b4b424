// What is behind the C functions of driver.h, which say what it does. What is
// wrong goes to EndWith(), which throws in the driver.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_DRIVEN_SOLVER_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_DRIVEN_SOLVER_H_

#include <atomic>
#include <caffe/net.hpp>
#include <caffe/solver.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "caffe_layers/driver_inputs.h"

namespace tensorlightning {

class DrivenSolver final : private caffe::Net<float>::Callback {
 public:
  DrivenSolver(const std::string& solver_text, const std::string& net_text,
               bool alone);
  ~DrivenSolver();

  void CreateTest();
  void Feed(bool test, const std::string& layer, const float* data,
            const float* labels, int64_t count);
  double Step(int iterations);
  void Join(int iteration);
  const char* Statistics();
  void ForwardTest();
  void Snapshot(const std::string& path) const;
  void Finish();
  void Close();

  void Interrupt(bool on) { interrupted_ = on; }

  int iteration() const { return iteration_; }
  // None: there is no such net.
  caffe::Net<float>* net(bool test) { return test ? test_.get() : net_.get(); }
  const NetInputs* inputs(bool test) const {
    return test ? test_inputs_.get() : inputs_.get();
  }

 private:
  // Caffe keeps for each thread which solver of how many it has.
  struct Share {
    int count = 1;
    int rank = 0;
  };
  class InShare;

  // Before the backward pass of each layer, the last one first.
  void run(int layer) override;
  void EndIfClosed() const;

  std::atomic<bool> interrupted_{false};
  caffe::NetParameter net_param_;
  Share share_;
  std::unique_ptr<caffe::Solver<float>> solver_;  // Until it is closed.
  caffe::shared_ptr<caffe::Net<float>> net_;
  std::unique_ptr<caffe::Net<float>> test_;
  std::unique_ptr<NetInputs> inputs_;
  std::unique_ptr<NetInputs> test_inputs_;
  int iteration_ = 0;
  std::string statistics_ = "{}";  // Also when it is closed.
  // Of the call of Step under way.
  double losses_ = 0.0;
  int64_t counted_ = 0;
};

// Of tl_caffe_check.
void CheckSolver(const std::string& solver_text, const std::string& net_text,
                 bool test);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_DRIVEN_SOLVER_H_
