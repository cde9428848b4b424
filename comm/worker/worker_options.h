// The settings of a worker, by the names that people use everywhere: keyword
// arguments in Python, a block in Caffe's solver file, variables TL_* of the
// environment. What is not given comes from the environment, and then from the
// defaults below.
//
//   Result<WorkerOptions> options =
//       WorkerOptions::Parse("period=20 density=0.02 policy=local");
#ifndef TENSORLIGHTNING_COMM_WORKER_WORKER_OPTIONS_H_
#define TENSORLIGHTNING_COMM_WORKER_WORKER_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "comm/client/elastic_client.h"
#include "comm/client/policy.h"
#include "comm/client/schedule.h"
#include "kernels/result.h"

namespace tensorlightning {

struct WorkerOptions {
  std::string policy = "elastic";  // elastic, local, dense, gradient[-async].
  uint64_t period = 10;            // Steps between two exchanges.
  double beta = 0.9;               // elastic, dense: beta / p is the pull.
  double density = 0.03;           // Share of the entries in a push ...
  double reply_density = 0.05;     // ... and in its reply.
  int bits = 2;                    // Of a value: 32, 16, 8, 4, 2.
  std::string when = "period";     // Or adaptive: when the model has changed.
  double change = 0.01;            // adaptive: by this share of its norm.
  double momentum = 0.0;           // gradient: the optimizer's, applied here.

  std::string aggregator;  // Empty: one worker alone, which embeds its own.
  std::string embed;       // Where an embedded aggregator listens for others.
  std::string job = "default";
  int32_t rank = kAnyRank;
  uint32_t size = 1;  // Workers that a launcher has started.
  uint64_t attempt = 0;
  std::string secret_file;
  std::string tls_ca;
  double patience_s = 60.0;
  // together: rank 0 ends with the work of all. apart: workers come and go as
  // they like; each one's last exchange is unpruned, and waits for nobody.
  std::string ending = "together";
  uint32_t report = 0;  // 1: tells the launcher how it goes (TL_REPORT_FD).

  // Settings are separated by newlines if there is one, else by blanks. Errors
  // name the setting, its value, and what is allowed.
  static Result<WorkerOptions> Parse(std::string_view text);

  static bool Has(std::string_view name);
  // An error that lists what people may set, and what a caller has `more`.
  static Error NoSetting(std::string_view name, std::string_view more);

  // An error unless they make sense together.
  Status Check() const;

  bool is_gradient() const { return policy.starts_with("gradient"); }
  bool ends_apart() const { return ending == "apart"; }
  std::chrono::milliseconds patience() const;

  // The same for an ElasticClient; of its options, what is not said here is
  // left to the caller.
  Result<Policy> MakePolicy() const;
  Result<std::shared_ptr<Schedule>> MakeSchedule() const;
  // From secret_file, else from the environment.
  Result<Secret> ReadSecret() const;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_WORKER_WORKER_OPTIONS_H_
