// ClientOptions from TL_* variables: what launchers set.

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "comm/client/elastic_client.h"

namespace tensorlightning {
namespace {

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

template <typename Number>
Status ReadNumber(const char* name, Number& number) {
  const std::string_view text = Variable(name);
  if (text.empty()) return Done{};
  Number parsed{};
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size() || parsed < 0) {
    return Error{ErrorCode::kInvalidArgument, std::string(name) + "=" +
                                                  std::string(text) +
                                                  " is no number from 0 on"};
  }
  number = parsed;
  return Done{};
}

}  // namespace

Result<ClientOptions> ClientOptions::FromEnvironment() {
  ClientOptions options;
  const std::string_view where = Variable("TL_AGGREGATOR");
  if (where.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "TL_AGGREGATOR is not set: it says where the aggregator "
                 "listens, as in TL_AGGREGATOR=host:7070"};
  }
  Result<std::vector<Endpoint>> endpoints = Endpoint::ParseList(where);
  if (!endpoints.ok()) {
    return Error{endpoints.error().code,
                 "TL_AGGREGATOR: " + endpoints.error().message};
  }
  options.aggregators = std::move(*endpoints);
  if (!Variable("TL_JOB").empty()) options.job = Variable("TL_JOB");
  Status status = ReadNumber("TL_RANK", options.rank);
  if (status.ok()) status = ReadNumber("TL_ATTEMPT", options.attempt);
  if (!status.ok()) return status.error();
  Result<Secret> secret = Secret::FromEnvironment();
  if (!secret.ok()) return secret.error();
  options.secret = std::move(*secret);
  const std::string_view authority = Variable("TL_TLS_CA");
  if (!authority.empty()) {
    Result<TlsContext> tls = MakeClientTls(std::string(authority));
    if (!tls.ok()) return tls.error();
    options.tls = std::move(*tls);
  }
  return options;
}

}  // namespace tensorlightning
