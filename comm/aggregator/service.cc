#include "comm/aggregator/service.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <set>
#include <thread>
#include <utility>

#include "comm/aggregator/session.h"
#include "comm/snapshot.h"

namespace tensorlightning {
namespace {

constexpr size_t kGreetingQueue = 8;
constexpr std::chrono::milliseconds kLeaseCheck{100};
// Until workers have read that the aggregator ends.
constexpr std::chrono::milliseconds kFarewell{1'000};

uint64_t MakeIncarnation() {
  const Nonce random = MakeNonce();
  uint64_t incarnation = 0;
  std::memcpy(&incarnation, random.data(), sizeof(incarnation));
  return incarnation | 1;  // Never 0.
}

// The centre and one view, at least, have to fit.
Status CheckMemory(const ShardMap& map, ShardRange range) {
  uint64_t bytes = 0;
  for (uint32_t i = range.begin; i < range.end; ++i) {
    bytes += 2 * sizeof(float) * map.shards()[i].entries;
  }
  const auto memory = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
  if (bytes <= memory) return Done{};
  return Error{ErrorCode::kRefused,
               "the model takes " + std::to_string(bytes >> 20) +
                   " MiB here with one worker alone; this machine has " +
                   std::to_string(memory >> 20) +
                   ": spread the aggregator over more processes (--part)"};
}

Error Refuse(std::string message) {
  return {ErrorCode::kRefused, std::move(message)};
}

}  // namespace

Service::Service(AggregatorOptions options, std::shared_ptr<ThreadPool> pool)
    : options_(std::move(options)),
      incarnation_(MakeIncarnation()),
      owns_pool_(pool == nullptr),
      pool_(owns_pool_ ? std::make_shared<ThreadPool>(options_.threads)
                       : std::move(pool)),
      members_(options_.max_workers),
      lease_strand_(pool_->MakeStrand()),
      lease_timer_(lease_strand_),
      job_(options_.job) {}

Service::~Service() {
  if (keeper_ != nullptr) keeper_->Stop();
  if (owns_pool_) pool_->Stop();
}

// ---- Start and stop. --------------------------------------------------------

Status Service::CheckListen(const Endpoint& endpoint) const {
  if (!options_.secret.empty() || endpoint.IsLoopback() ||
      options_.open_to_anybody) {
    return Done{};
  }
  return Error{ErrorCode::kInvalidArgument,
               "without a secret, listening on " + endpoint.ToString() +
                   " would let anybody read and change the model: give a "
                   "secret (--secret-file or TL_SECRET_FILE), listen on "
                   "127.0.0.1, or say --open-to-anybody"};
}

Status Service::Restore() {
  Result<FolderLock> taken = FolderLock::Take(options_.snapshot_folder);
  if (!taken.ok()) return taken.error();
  folder_lock_ = std::move(*taken);
  const Result<FoundSnapshot> found = FindSnapshot(options_.snapshot_folder);
  if (!found.ok()) return found.error();
  for (const std::string& damaged : found->damaged) {
    options_.log.Warning("damaged snapshot", {{"reason", damaged}});
  }
  if (found->snapshot.has_value()) {
    const Snapshot& snapshot = *found->snapshot;
    Result<Layout> layout = Layout::Parse(snapshot.header.layout);
    if (!layout.ok()) return layout.error();
    const ShardMap map(*layout);
    const Result<ShardRange> range = map.Part(options_.part, options_.parts);
    if (!range.ok()) return range.error();
    const bool fits =
        *range == snapshot.header.range &&
        (options_.job.empty() || options_.job == snapshot.header.job) &&
        (!options_.rule.has_value() || *options_.rule == snapshot.header.rule);
    if (!fits) {
      return Error{ErrorCode::kInvalidArgument,
                   found->path + " is of job '" + snapshot.header.job +
                       "', rule " + NameOf(snapshot.header.rule) + ", shards " +
                       std::to_string(snapshot.header.range.begin) + " to " +
                       std::to_string(snapshot.header.range.end) +
                       "; this aggregator was asked for something else: give "
                       "it another snapshot folder, or the same settings"};
    }
    auto centre = std::make_shared<Centre>(*layout, *range,
                                           snapshot.header.rule, true, *pool_);
    for (const ShardSnapshot& shard : snapshot.shards) {
      Status restored = centre->at(shard.shard).state.Restore(shard);
      if (!restored.ok()) return restored;
    }
    std::set<uint32_t> ranks;
    for (const ShardSnapshot& shard : snapshot.shards) {
      for (const AppliedPush& push : shard.applied) ranks.insert(push.rank);
    }
    members_.Reserve(std::move(ranks), options_.lease);
    centre_ = std::move(centre);
    job_ = snapshot.header.job;
    options_.log.Info(
        "restored",
        {{"path", found->path}, {"job", job_}, {"entries", layout->entries()}});
  } else if (!found->damaged.empty()) {
    options_.log.Warning("no whole snapshot is left; starting anew");
  }
  keeper_ = std::make_unique<SnapshotKeeper>(
      options_.snapshot_folder, options_.snapshot_every, found->next_number,
      [this] { return centre(); },
      [this] {
        const std::lock_guard lock(mutex_);
        return job_;
      },
      options_.log);
  return Done{};
}

Status Service::Start() {
  if (options_.parts == 0 || options_.part >= options_.parts) {
    return Error{ErrorCode::kInvalidArgument,
                 "part " + std::to_string(options_.part) + " of " +
                     std::to_string(options_.parts) + " makes no sense"};
  }
  for (const Endpoint& endpoint : options_.listen) {
    Status status = CheckListen(endpoint);
    if (!status.ok()) return status;
  }
  if (!options_.snapshot_folder.empty()) {
    Status status = Restore();
    if (!status.ok()) return status;
  }
  for (const Endpoint& endpoint : options_.listen) {
    Result<std::shared_ptr<Listener>> listener = Listener::Open(
        *pool_, endpoint, options_.congestion,
        [this](const Strand& strand, Socket socket) {
          const auto session = std::make_shared<Session>(
              *this, Channel::Make(strand, std::move(socket), options_.timeouts,
                                   pool_->watchdog(), kGreetingQueue));
          Began(session);
          asio::co_spawn(strand, Session::Run(session), asio::detached);
        });
    if (!listener.ok()) return listener.error();
    listeners_.push_back(*listener);
  }
  asio::co_spawn(lease_strand_, WatchLeases(), asio::detached);
  return Done{};
}

Status Service::Stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return Done{};
    stopping_ = true;
  }
  for (const std::shared_ptr<Listener>& listener : listeners_) {
    listener->Close();
  }
  asio::post(lease_strand_, [this] {
    watching_ = false;
    lease_timer_.cancel();
  });
  for (const std::shared_ptr<Session>& session : members_.Sessions()) {
    session->End(WireError::kShutdown, "the aggregator ends");
  }
  WaitForNobody(kFarewell);
  // Who has not read that by now is cut off: what is acknowledged after the
  // last snapshot would be lost.
  for (const std::shared_ptr<Session>& session : members_.Sessions()) {
    asio::co_spawn(
        pool_->context(),
        [session]() -> Awaitable<void> {
          co_await session->Shut(WireError::kShutdown, "the aggregator ends");
        },
        asio::detached);
  }
  WaitForNobody(kFarewell);
  Status status = Done{};
  // Nobody makes more of them: it is ending.
  for (const auto& [job, companion] : companions_) {
    Status stopped = companion->Stop();
    if (!stopped.ok()) status = std::move(stopped);
  }
  if (keeper_ != nullptr) {
    keeper_->Stop();
    if (centre() != nullptr) {
      const Result<std::string> path = keeper_->Write();
      if (!path.ok()) status = path.error();
    }
  }
  listeners_.clear();
  if (owns_pool_) pool_->Stop();
  return status;
}

void Service::WaitForNobody(std::chrono::milliseconds patience) const {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!members_.Sessions().empty() &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// ---- Models. ----------------------------------------------------------------

std::shared_ptr<Centre> Service::centre() const {
  const std::lock_guard lock(mutex_);
  return centre_;
}

Result<std::shared_ptr<Centre>> Service::CentreFor(const Hello& hello,
                                                   const Join& join,
                                                   WireError& code) {
  code = WireError::kLayout;
  Result<Layout> layout = Layout::Parse(join.layout);
  if (!layout.ok()) return layout.error();
  if (layout->fingerprint() != hello.fingerprint) {
    return Refuse("the layout is not the one that the worker announced");
  }
  const std::lock_guard lock(mutex_);
  if (stopping_) {
    code = WireError::kShutdown;
    return Refuse("the aggregator ends");
  }
  if (!job_.empty() && hello.job != job_) {
    code = WireError::kJob;
    return Refuse("this aggregator serves job '" + job_ + "', not '" +
                  hello.job + "'");
  }
  const Rule rule =
      centre_ != nullptr ? centre_->rule() : options_.rule.value_or(join.rule);
  if (rule != join.rule) {
    code = WireError::kRule;
    return Refuse("this aggregator's rule is " + std::string(NameOf(rule)) +
                  ", the worker's is " + NameOf(join.rule) +
                  ": give all the same policy");
  }
  if (centre_ != nullptr) {
    const std::string difference =
        DescribeDifference(centre_->layout(), *layout);
    if (!difference.empty()) {
      return Refuse(
          "all workers must have the same model, and this one's "
          "('there') is not the one that came first ('here'): " +
          difference);
    }
    return centre_;
  }
  const Result<ShardRange> range =
      ShardMap(*layout).Part(options_.part, options_.parts);
  if (!range.ok()) return range.error();
  const Status fits = CheckMemory(ShardMap(*layout), *range);
  if (!fits.ok()) return fits.error();
  centre_ = std::make_shared<Centre>(*layout, *range, rule, keeper_ != nullptr,
                                     *pool_);
  job_ = hello.job;
  options_.log.Info("model", {{"job", job_},
                              {"tensors", layout->tensors().size()},
                              {"entries", layout->entries()},
                              {"rule", NameOf(rule)},
                              {"shards", range->size()}});
  return centre_;
}

void Service::DropViews(uint32_t rank) {
  const std::shared_ptr<Centre> model = centre();
  if (model == nullptr) return;
  const ShardRange range = model->range();
  for (uint32_t i = range.begin; i < range.end; ++i) {
    Centre::Served& served = model->at(i);
    asio::post(served.strand, [this, model, &served, i, rank] {
      // One that is back by now has dropped them itself, and pulled anew.
      if (members_.IsLive(rank)) return;
      served.state.Drop(rank);
      DeliverReady(served, i);
    });
  }
}

void Service::DeliverReady(Centre::Served& served, uint32_t shard) {
  for (const uint32_t rank : served.state.TakeReady()) {
    const std::shared_ptr<Session> session = members_.SessionOf(rank);
    // Without one, the worker asks again when it is back.
    if (session != nullptr) {
      session->Deliver(shard, served.state.LastReply(rank));
    }
  }
}

// ---- Coming and going. ------------------------------------------------------

void Service::Began(const std::shared_ptr<Session>& session) {
  connections_.fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<Session> oldest;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(strangers_, [](const std::weak_ptr<Session>& stranger) {
      return stranger.expired();
    });
    strangers_.push_back(session);
    if (strangers_.size() > options_.max_strangers) {
      oldest = strangers_.front().lock();
      strangers_.pop_front();
    }
  }
  // Who says nothing makes room for who may.
  if (oldest != nullptr) {
    oldest->End(WireError::kBusy, "too many connections that have not joined");
  }
}

void Service::IsNoStranger(const std::shared_ptr<Session>& session) {
  const std::lock_guard lock(mutex_);
  std::erase_if(strangers_, [&](const std::weak_ptr<Session>& stranger) {
    return stranger.lock() == session;
  });
}

void Service::Joined(const std::shared_ptr<Session>& session,
                     const Member& member) {
  options_.log.Info("joined", {{"rank", member.rank},
                               {"worker", member.name},
                               {"peer", session->peer()},
                               {"live", members_.live()}});
}

void Service::Ended(const std::shared_ptr<Session>& session, const Error& why) {
  const std::shared_ptr<Member>& member = session->member();
  if (member == nullptr) {
    turned_away_.fetch_add(1, std::memory_order_relaxed);
    options_.log.Warning("turned away",
                         {{"peer", session->peer()}, {"reason", why.message}});
    return;
  }
  members_.Detach(*member, session.get());
  options_.log.Info("disconnected", {{"rank", member->rank},
                                     {"worker", member->name},
                                     {"reason", why.message}});
}

Awaitable<void> Service::WatchLeases() {
  uint32_t announced = 0;
  while (watching_) {
    SysError cancelled;
    lease_timer_.expires_after(kLeaseCheck);
    co_await lease_timer_.async_wait(Into(cancelled));
    if (!watching_) co_return;
    try {
      co_await DropExpired();
    } catch (const std::exception& error) {
      // Too little memory: the rest follows with the next look.
      options_.log.Error("leases", {{"reason", error.what()}});
      continue;
    }
    // The workers' coefficients follow their number.
    if (members_.live() == announced) continue;
    announced = members_.live();
    for (const std::shared_ptr<Session>& session : members_.Sessions()) {
      session->Announce();
    }
  }
}

Awaitable<void> Service::DropExpired() {
  const std::vector<Members::Expired> expired =
      members_.TakeExpired(Deadline::Clock::now());
  for (const Members::Expired& gone : expired) {
    expired_.fetch_add(1, std::memory_order_relaxed);
    options_.log.Warning("lease ran out", {{"rank", gone.member->rank},
                                           {"worker", gone.member->name},
                                           {"live", members_.live()}});
    if (gone.session != nullptr) {
      co_await gone.session->Shut(WireError::kBusy,
                                  "nothing was heard for the time of a lease");
    }
    DropViews(gone.member->rank);
  }
}

// ---- What is to be seen. ----------------------------------------------------

AggregatorTotals Service::Totals() const {
  AggregatorTotals totals;
  totals.live = members_.live();
  totals.connections = connections_.load();
  totals.turned_away = turned_away_.load();
  totals.expired = expired_.load();
  for (const std::shared_ptr<Member>& member : members_.All()) {
    const WorkerCounts& counts = *member->counts;
    totals.pushes += counts.pushes.load();
    totals.repeated += counts.repeated.load();
    totals.refused += counts.refused.load();
    totals.resyncs += counts.resyncs.load();
    totals.entries_in += counts.entries_in.load();
    totals.entries_out += counts.entries_out.load();
    totals.bytes_in += counts.bytes_in.load();
    totals.bytes_out += counts.bytes_out.load();
  }
  if (keeper_ != nullptr) {
    totals.snapshots = keeper_->written();
    totals.failed_snapshots = keeper_->failed();
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [job, companion] : companions_) {
    const AggregatorTotals beside = companion->Totals();
    totals.live = std::max(totals.live, beside.live);
    totals.expired += beside.expired;
    totals.pushes += beside.pushes;
    totals.repeated += beside.repeated;
    totals.refused += beside.refused;
    totals.resyncs += beside.resyncs;
    totals.entries_in += beside.entries_in;
    totals.entries_out += beside.entries_out;
    totals.bytes_in += beside.bytes_in;
    totals.bytes_out += beside.bytes_out;
    totals.snapshots += beside.snapshots;
    totals.failed_snapshots += beside.failed_snapshots;
  }
  return totals;
}

Result<std::string> Service::TakeSnapshot() {
  if (keeper_ == nullptr) {
    return Error{ErrorCode::kInvalidArgument,
                 "this aggregator was given no folder for snapshots"};
  }
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return Error{ErrorCode::kUnavailable, "the aggregator has ended"};
    }
  }
  return keeper_->Write();
}

std::vector<Endpoint> Service::Endpoints() const {
  std::vector<Endpoint> endpoints;
  endpoints.reserve(listeners_.size());
  for (const std::shared_ptr<Listener>& listener : listeners_) {
    endpoints.push_back(listener->endpoint());
  }
  return endpoints;
}

}  // namespace tensorlightning
