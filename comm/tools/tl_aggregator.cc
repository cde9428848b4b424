// tl-aggregator: the aggregator as a program of its own.
//
// It prints one line on stdout once it listens, "listening on HOST:PORT ...",
// logs to stderr, and ends on SIGTERM or SIGINT after a last snapshot.

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/aggregator/aggregator.h"
#include "comm/flags.h"
#include "comm/tools/rule_names.h"
#include "comm/transport/asio.h"

namespace tensorlightning {
namespace {

struct Settings {
  std::vector<std::string> listen;
  std::string job;
  std::string rule = "any";
  std::string part = "0/1";
  std::string secret_file;
  bool open_to_anybody = false;
  std::string tls_certificate;
  std::string tls_key;
  std::string snapshot_dir;
  std::chrono::milliseconds snapshot_every{60'000};
  std::chrono::milliseconds lease{30'000};
  std::chrono::milliseconds handshake{10'000};
  std::chrono::milliseconds progress{30'000};
  int64_t max_workers = 4096;
  int64_t threads = 2;
  std::string congestion;
  bool until_stdin_ends = false;
  std::string log = "text";
  std::string log_level = "info";
};

Flags MakeFlags(Settings& settings) {
  Flags flags("tl-aggregator",
              "Keeps the centre of a model and averages into it what workers "
              "push.");
  flags.Add("listen", &settings.listen, "HOST:PORT|unix:PATH",
            "where to listen; may be given several times (127.0.0.1:7070)");
  flags.Add("job", &settings.job, "NAME",
            "the job to serve; without it, that of the first worker");
  flags.AddChoice("rule", &settings.rule,
                  {"any", "average", "gradient-sync", "gradient-async"},
                  "what to do with pushes; any: what the first worker wants");
  flags.Add("part", &settings.part, "K/N",
            "serve the K-th of N parts of the model, K from 0: one process for "
            "each part");
  flags.Add("secret-file", &settings.secret_file, "FILE",
            "the secret that workers must know; without it TL_SECRET_FILE or "
            "TL_SECRET");
  flags.Add("open-to-anybody", &settings.open_to_anybody,
            "listen beyond loopback without a secret");
  flags.Add("tls-certificate", &settings.tls_certificate, "FILE",
            "PEM; with it, connections are encrypted");
  flags.Add("tls-key", &settings.tls_key, "FILE", "PEM; its key");
  flags.Add("snapshot-dir", &settings.snapshot_dir, "FOLDER",
            "write snapshots here, and go on from the newest one");
  flags.Add("snapshot-every", &settings.snapshot_every, "TIME",
            "between two snapshots");
  flags.Add("lease", &settings.lease, "TIME",
            "drop a worker after this long without a sign of life");
  flags.Add("handshake-timeout", &settings.handshake, "TIME",
            "for a connection to show who it is");
  flags.Add("progress-timeout", &settings.progress, "TIME",
            "for the next byte of a frame to come, or to be taken");
  flags.Add("max-workers", &settings.max_workers, "N", "ranks to give");
  flags.Add("threads", &settings.threads, "N", "threads of the pool");
  flags.Add("congestion", &settings.congestion, "NAME",
            "TCP's congestion control: cubic, bbr, ...");
  flags.Add("until-stdin-ends", &settings.until_stdin_ends,
            "end, after a last snapshot, when whoever started it is gone: when "
            "its standard input is closed");
  flags.AddChoice("log", &settings.log, {"text", "json"}, "format of the log");
  flags.AddChoice("log-level", &settings.log_level,
                  {"debug", "info", "warning", "error", "none"},
                  "the least that is logged");
  flags.Epilogue(
      "Workers find it by TL_AGGREGATOR=HOST:PORT. The secret comes from a "
      "file or the environment, never from the command line, which everybody "
      "on the machine can read. SIGTERM ends it cleanly after a last "
      "snapshot.");
  return flags;
}

Error Bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Status ReadPart(const std::string& text, AggregatorOptions& options) {
  int used = 0;
  if (std::sscanf(text.c_str(), "%u/%u%n", &options.part, &options.parts,
                  &used) != 2 ||
      static_cast<size_t>(used) != text.size() ||
      options.part >= options.parts) {
    return Bad("--part=" + text + " is not K/N with K from 0 to N-1");
  }
  return Done{};
}

Status ReadSecret(const Settings& settings, AggregatorOptions& options) {
  Result<Secret> secret = settings.secret_file.empty()
                              ? Secret::FromEnvironment()
                              : Secret::FromFile(settings.secret_file);
  if (!secret.ok()) return secret.error();
  options.secret = std::move(*secret);
  return Done{};
}

Status ReadTls(const Settings& settings, AggregatorOptions& options) {
  if (settings.tls_certificate.empty() != settings.tls_key.empty()) {
    return Bad("--tls-certificate and --tls-key go together");
  }
  if (settings.tls_key.empty()) return Done{};
  Result<TlsContext> tls =
      MakeServerTls(settings.tls_certificate, settings.tls_key);
  if (!tls.ok()) return tls.error();
  options.tls = std::move(*tls);
  return Done{};
}

LogLevel LevelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kNone;
}

Status InRange(const char* flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Done{};
  return Bad("--" + std::string(flag) + "=" + std::to_string(value) +
             " is not from " + std::to_string(least) + " to " +
             std::to_string(most));
}

Status Positive(const char* flag, std::chrono::milliseconds value) {
  if (value.count() >= 1 && value <= std::chrono::hours(24)) return Done{};
  return Bad("--" + std::string(flag) + " must be from 1 ms to a day");
}

Result<AggregatorOptions> OptionsOf(const Settings& settings) {
  AggregatorOptions options;
  if (!settings.listen.empty()) options.listen.clear();
  for (const std::string& text : settings.listen) {
    Result<Endpoint> endpoint = Endpoint::Parse(text);
    if (!endpoint.ok()) return Bad("--listen: " + endpoint.error().message);
    options.listen.push_back(*endpoint);
  }
  if (settings.job.size() > kMaxIdBytes) {
    return Bad("--job: at most " + std::to_string(kMaxIdBytes) + " bytes");
  }
  options.job = settings.job;
  options.rule = RuleFromName(settings.rule);
  options.open_to_anybody = settings.open_to_anybody;
  options.snapshot_folder = settings.snapshot_dir;
  options.snapshot_every = settings.snapshot_every;
  options.lease = settings.lease;
  options.timeouts.handshake = settings.handshake;
  options.timeouts.progress = settings.progress;
  options.max_workers = static_cast<uint32_t>(settings.max_workers);
  options.threads = static_cast<int>(settings.threads);
  options.congestion = settings.congestion;
  options.log =
      Log(2, LevelOf(settings.log_level),
          settings.log == "json" ? Log::Format::kJson : Log::Format::kText);
  Status status = InRange("max-workers", settings.max_workers, 1, 65'536);
  if (status.ok()) status = InRange("threads", settings.threads, 1, 256);
  if (status.ok()) status = Positive("lease", settings.lease);
  if (status.ok()) status = Positive("snapshot-every", settings.snapshot_every);
  if (status.ok()) status = Positive("handshake-timeout", settings.handshake);
  if (status.ok()) status = Positive("progress-timeout", settings.progress);
  if (status.ok()) status = ReadPart(settings.part, options);
  if (status.ok()) status = ReadSecret(settings, options);
  if (status.ok()) status = ReadTls(settings, options);
  if (!status.ok()) return status.error();
  return options;
}

// A connection each: as many as the system lets us have.
void RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

// Reads and forgets what comes. The end comes when the last process that holds
// the other side has closed it, or was killed.
void StopWhenEnded(asio::posix::stream_descriptor& input,
                   asio::io_context& context) {
  static std::array<char, 256> ignored;
  input.async_read_some(asio::buffer(ignored), [&](SysError error, size_t) {
    if (error) return context.stop();
    StopWhenEnded(input, context);
  });
}

int Complain(const Error& error) {
  std::cerr << "tl-aggregator: " << error.message << "\n";
  return error.code == ErrorCode::kInvalidArgument ? 2 : 1;
}

int Main(std::span<const char* const> arguments) {
  Settings settings;
  Flags flags = MakeFlags(settings);
  const Result<Flags::Outcome> parsed = flags.Parse(arguments);
  if (!parsed.ok()) return Complain(parsed.error());
  if (*parsed == Flags::Outcome::kHelp) {
    std::cout << flags.Help();
    return 0;
  }
  Result<AggregatorOptions> options = OptionsOf(settings);
  if (!options.ok()) return Complain(options.error());
  RaiseFileLimit();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // A limit on files is an error, not the end.
  // Signals are to be caught before anybody is told that it runs.
  asio::io_context context;
  asio::signal_set signals(context, SIGTERM, SIGINT);

  std::string whom =
      options->secret.empty() ? "without a secret" : "for who knows the secret";
  if (options->tls != nullptr) whom += ", over TLS";
  if (!options->job.empty()) whom += ", job " + options->job;
  Result<std::unique_ptr<Aggregator>> aggregator =
      Aggregator::Start(std::move(*options));
  if (!aggregator.ok()) return Complain(aggregator.error());
  for (const Endpoint& endpoint : (*aggregator)->endpoints()) {
    std::cout << "listening on " << endpoint.ToString() << " " << whom << "\n"
              << std::flush;
  }
  signals.async_wait([&context](SysError, int) { context.stop(); });
  asio::posix::stream_descriptor input(context);
  if (settings.until_stdin_ends) {
    SysError unusable;
    // A file or /dev/null can't be waited for: they have ended already.
    input.assign(::dup(STDIN_FILENO), unusable);
    if (unusable) {
      return Complain({ErrorCode::kInvalidArgument,
                       "--until-stdin-ends: standard input is no pipe"});
    }
    StopWhenEnded(input, context);
  }
  context.run();
  const Status stopped = (*aggregator)->Stop();
  return stopped.ok() ? 0 : Complain(stopped.error());
}

}  // namespace
}  // namespace tensorlightning

int main(int argc, char** argv) {
  try {
    return tensorlightning::Main({argv + 1, static_cast<size_t>(argc - 1)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tl-aggregator: %s\n", error.what());
    return 1;
  }
}
