// A gradient policy's step: a worker's gradients become the mean of
// everybody's.
//
//   gradient        waits for the others' gradients of the same round
//   gradient-async  sends what it can, and delivers what has come by now
//   alone           nobody to average with: only the momentum is applied
//
// Belongs to a Worker, whose client and options outlive it. One call at a time.
#ifndef TENSORLIGHTNING_COMM_WORKER_GRADIENT_MEAN_H_
#define TENSORLIGHTNING_COMM_WORKER_GRADIENT_MEAN_H_

#include <functional>
#include <vector>

#include "comm/client/elastic_client.h"
#include "comm/worker/worker_options.h"
#include "kernels/result.h"

namespace tensorlightning {

class GradientMean {
 public:
  // `interrupted`: somebody wants waits to end.
  GradientMean(const WorkerOptions& options, ElasticClient& client,
               std::function<bool()> interrupted);

  Status Average(Tensors gradients);

 private:
  Status AverageTogether(Tensors gradients);
  Status AverageMeanwhile(Tensors gradients);
  void AccelerateAlone(Tensors gradients);
  Status WaitForRound();
  void MakeRoom(Tensors gradients);

  const WorkerOptions& options_;
  ElasticClient& client_;
  const std::function<bool()> interrupted_;
  // Owed while an exchange is under way, or a mean that came too late for its
  // call, or, alone, the velocity.
  std::vector<std::vector<float>> pending_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_WORKER_GRADIENT_MEAN_H_
