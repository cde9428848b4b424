#include <sstream>

#include "comm/aggregator/service.h"
#include "comm/json.h"

namespace tensorlightning {

std::string Service::StatusJson() const {
  std::ostringstream out;
  {
    JsonObject all(out);
    {
      const std::lock_guard lock(mutex_);
      all.Add("job", job_);
      if (centre_ != nullptr) {
        all.Add("rule", std::string(NameOf(centre_->rule())));
        all.Add("entries", centre_->layout().entries());
      }
    }
    const AggregatorTotals totals = Totals();
    all.Add("live", totals.live);
    all.Add("known", members_.All().size());  // Also those that have left.
    all.Add("connections", totals.connections);
    all.Add("turned_away", totals.turned_away);
    all.Add("pushes", totals.pushes);
    all.Add("repeated", totals.repeated);
    all.Add("refused", totals.refused);
    all.Add("resyncs", totals.resyncs);
    all.Add("expired", totals.expired);
    all.Add("entries_in", totals.entries_in);
    all.Add("entries_out", totals.entries_out);
    all.Add("bytes_in", totals.bytes_in);
    all.Add("bytes_out", totals.bytes_out);
    all.Add("snapshots", totals.snapshots);
    all.Add("failed_snapshots", totals.failed_snapshots);
    all.Add("apply_p50_us",
            static_cast<uint64_t>(apply_time_.Quantile(0.5).count() / 1000));
    all.Add("apply_p99_us",
            static_cast<uint64_t>(apply_time_.Quantile(0.99).count() / 1000));
    all.Key("workers") << '[';
    bool first = true;
    for (const std::shared_ptr<Member>& member : members_.All()) {
      if (!first) out << ',';
      first = false;
      JsonObject worker(out);
      worker.Add("rank", member->rank);
      worker.Add("name", member->name);
      worker.Add("pushes", member->counts->pushes.load());
      worker.Add("repeated", member->counts->repeated.load());
      worker.Add("refused", member->counts->refused.load());
      worker.Add("entries_in", member->counts->entries_in.load());
      worker.Add("entries_out", member->counts->entries_out.load());
      worker.Add("bytes_in", member->counts->bytes_in.load());
      worker.Add("bytes_out", member->counts->bytes_out.load());
    }
    out << ']';
  }
  return out.str();
}

}  // namespace tensorlightning
