// What a solver's exchange does at the points of its training:
//
//   Step    TestAll -> OnStart -> forward, backward -> OnGradientsReady
//                   -> ApplyUpdate -> AfterUpdate -> Snapshot
//
// Joins before the first step, exchanges after updates in the background. For a
// test or a snapshot that comes next the net holds the centre, and its own
// weights again before it goes on. After the last update it has left, and the
// net holds what all have learned.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_EXCHANGE_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_EXCHANGE_H_

#include <caffe/net.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "caffe_layers/solver_options.h"
#include "comm/worker/worker.h"

namespace tensorlightning {

class SolverExchange {
 public:
  // `stopped` is asked while it waits: whether the user wants to end.
  SolverExchange(SolverOptions options, caffe::Net<float>& net,
                 std::function<bool()> stopped);
  ~SolverExchange();

  void OnStart();
  void OnGradientsReady();

  struct Update {
    bool last = false;   // The training's.
    bool shown = false;  // A test or a snapshot comes next.
    double loss = 0.0;
  };
  void AfterUpdate(const Update& update);
  // What it does after the last update; for trainings that end before. An
  // error: the net still holds this worker's own weights.
  Status Finish();
  // Of its exchanges, as JSON; when it has finished: of all that it had.
  std::string Statistics() const;

  // This worker's own weights beside a snapshot that holds the centre, and back
  // from there, if it is this rank's.
  void SaveState(const std::string& solver_state) const;
  void RestoreState(const std::string& solver_state);

 private:
  using Copy = std::vector<std::vector<float>>;

  void Join();
  void LendToCentre();
  void TakeBack();
  std::string StateFile(const std::string& solver_state) const;

  const SolverOptions options_;
  caffe::Net<float>& net_;
  const std::function<bool()> stopped_;
  std::unique_ptr<Worker> worker_;
  bool finished_ = false;
  std::string last_statistics_ = "{}";
  Copy own_;       // While the net holds the centre.
  Copy restored_;  // Until it has joined.
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_EXCHANGE_H_
