// Reads batches ahead on a thread of its own, so that a step finds its data
// there. Owns the source. Called by one thread.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_FEED_PREFETCH_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_FEED_PREFETCH_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "caffe_layers/feed_format.h"

namespace tensorlightning {

struct FeedBatch {
  std::vector<std::vector<float>> tops;
  uint64_t epochs = 0;  // That had ended before its last record.
};

struct FeedPlan {
  std::vector<FeedShape> shapes;
  size_t batch = 1;  // Records. A batch goes on over the end of an epoch.
  size_t ahead = 4;  // Batches.
};

class FeedPrefetch {
 public:
  // Waits for the feeder's hello.
  static Result<std::unique_ptr<FeedPrefetch>> Start(
      std::unique_ptr<FeedSource> source, FeedPlan plan);
  ~FeedPrefetch();

  // The next batch, until the next call; waits for it. Batches that came before
  // an error are given first. The end of the data is an error: more is wanted;
  // so is Ctrl-C, if nothing comes for a second after it.
  Result<const FeedBatch*> Next();

 private:
  FeedPrefetch(std::unique_ptr<FeedSource> source, FeedReader reader,
               FeedPlan plan);

  void Run();
  Status Fill(FeedBatch& batch);

  const std::unique_ptr<FeedSource> source_;
  FeedReader reader_;
  const FeedPlan plan_;

  std::mutex mutex_;  // Guards what follows, up to the thread.
  std::condition_variable changed_;
  bool stopped_ = false;
  std::deque<FeedBatch> empty_;
  std::deque<FeedBatch> full_;
  std::optional<Error> error_;

  FeedBatch current_;
  std::thread thread_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_FEED_PREFETCH_H_
