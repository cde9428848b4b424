#include "comm/tools/tl_load_report.h"

#include <iomanip>
#include <sstream>
#include <string_view>

#include "comm/tools/tl_load_numbers.h"

namespace tensorlightning {
namespace {

// A whole number of the status's first level, which stands before its workers.
std::string FieldOf(std::string_view status, const std::string& name) {
  status = status.substr(0, status.find("\"workers\":["));
  const std::string key = "\"" + name + "\":";
  const size_t at = status.find(key);
  if (at == std::string_view::npos) return "?";
  status.remove_prefix(at + key.size());
  return std::string(status.substr(0, status.find_first_of(",}")));
}

double DensityOf(const LoadReport& report, uint64_t entries) {
  return Ratio(static_cast<double>(entries),
               static_cast<double>(report.tally.exchanges) *
                   static_cast<double>(report.load.layout.entries()));
}

double FewerThanDense(const LoadReport& report) {
  const Tally& tally = report.tally;
  const uint64_t all = tally.bytes_sent + tally.bytes_received;
  return Ratio(static_cast<double>(tally.dense_bytes),
               static_cast<double>(all - report.joining_bytes));
}

}  // namespace

std::string LoadReport::Table() const {
  std::ostringstream out;
  const auto row = [&](const char* name, const std::string& value,
                       const std::string& remark = "") {
    out << "  " << std::left << std::setw(22) << name << std::right
        << std::setw(14) << value << (remark.empty() ? "" : "  ") << remark
        << "\n";
  };
  const auto count = [](uint64_t number) { return std::to_string(number); };
  const auto exchanges = static_cast<double>(tally.exchanges);

  out << load.settings.workers << " workers, policy " << load.settings.policy
      << ", " << load.layout.entries() << " entries in " << shards
      << " shards, " << Short(seconds) << " s"
      << (interrupted ? " (ended early)" : "") << "\n";
  row("steps", count(tally.steps), Short(steps_per_s) + "/s");
  row("exchanges", count(tally.exchanges), Short(exchanges_per_s) + "/s");
  row("MB sent", Megabytes(tally.bytes_sent));
  row("MB received", Megabytes(tally.bytes_received),
      "of both, " + Megabytes(joining_bytes) + " MB to join");
  row("fewer than dense", Short(FewerThanDense(*this)) + "x",
      "without what it took to join");
  row("density sent", Short(DensityOf(*this, tally.entries_sent)));
  row("density received", Short(DensityOf(*this, tally.entries_received)));
  row("staleness",
      Short(Ratio(static_cast<double>(tally.staleness),
                  static_cast<double>(tally.pushes))),
      "pushes of others between two");
  row("steps behind",
      Short(Ratio(static_cast<double>(tally.steps_behind), exchanges)),
      "while an exchange was under way");
  row("latency p50", Milliseconds(tally.latency.Quantile(0.5)), "ms");
  row("latency p99", Milliseconds(tally.latency.Quantile(0.99)), "ms");
  row("latency max", Milliseconds(tally.latency.Max()), "ms");
  row("backed off", count(tally.backed_off), "due while one was under way");
  row("reconnects", count(tally.reconnects),
      count(cuts) + " cuts, " + count(crashes) + " crashes made here");
  row("resyncs", count(tally.resyncs));
  row("owed again", count(tally.owed_again));
  row("refused", count(tally.refused + tally.not_finite));
  if (drained) row("drained", *drained ? "yes" : "NO");
  if (views_agree) row("views agree", *views_agree ? "yes" : "NO");
  if (!aggregator) {
    out << "the aggregator's own account: none\n";
    return out.str();
  }
  out << "the aggregator's own account, since it started";
  if (load.client.aggregators.size() > 1) {
    out << " (the first of " << load.client.aggregators.size() << " processes)";
  }
  out << "\n";
  for (const char* name :
       {"live", "connections", "pushes", "repeated", "refused", "resyncs",
        "expired", "entries_in", "entries_out", "bytes_in", "bytes_out",
        "snapshots", "failed_snapshots", "apply_p50_us", "apply_p99_us"}) {
    row(name, FieldOf(*aggregator, name));
  }
  return out.str();
}

std::string LoadReport::Json() const {
  std::ostringstream out;
  out << std::setprecision(9) << "{";
  const auto key = [&](const char* name) -> std::ostream& {
    return out << (out.tellp() > 1 ? ",\n \"" : "\n \"") << name << "\": ";
  };
  const auto maybe = [&](const char* name, std::optional<bool> value) {
    key(name) << (!value ? "null" : *value ? "true" : "false");
  };
  const auto micros = [](std::chrono::nanoseconds time) {
    return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  };
  const auto histogram = [&](const std::string& name, const Histogram& times) {
    key((name + "_p50_us").c_str()) << micros(times.Quantile(0.5));
    key((name + "_p99_us").c_str()) << micros(times.Quantile(0.99));
    key((name + "_max_us").c_str()) << micros(times.Max());
    key((name + "_mean_us").c_str()) << micros(times.Mean());
  };
  key("workers") << load.settings.workers;
  key("policy") << JsonQuote(load.settings.policy);
  key("entries") << load.layout.entries();
  key("shards") << shards;
  key("seconds") << seconds;
  key("interrupted") << (interrupted ? "true" : "false");
  key("steps") << tally.steps;
  key("steps_per_s") << steps_per_s;
  key("exchanges") << tally.exchanges;
  key("exchanges_per_s") << exchanges_per_s;
  key("pushes") << tally.pushes;
  key("bytes_sent") << tally.bytes_sent;
  key("bytes_received") << tally.bytes_received;
  key("bytes_joining") << joining_bytes;
  key("dense_bytes") << tally.dense_bytes;
  key("fewer_than_dense") << FewerThanDense(*this);
  key("entries_sent") << tally.entries_sent;
  key("entries_received") << tally.entries_received;
  key("density_sent") << DensityOf(*this, tally.entries_sent);
  key("density_received") << DensityOf(*this, tally.entries_received);
  key("staleness_mean") << Ratio(static_cast<double>(tally.staleness),
                                 static_cast<double>(tally.pushes));
  key("steps_behind_mean") << Ratio(static_cast<double>(tally.steps_behind),
                                    static_cast<double>(tally.exchanges));
  histogram("latency", tally.latency);
  histogram("round_trip", tally.round_trip);
  key("backed_off") << tally.backed_off;
  key("reconnects") << tally.reconnects;
  key("resyncs") << tally.resyncs;
  key("owed_again") << tally.owed_again;
  key("forgotten") << tally.forgotten;
  key("refused") << tally.refused;
  key("not_finite") << tally.not_finite;
  key("cuts") << cuts;
  key("crashes") << crashes;
  maybe("drained", drained);
  maybe("views_agree", views_agree);
  key("failures") << "[";
  for (size_t i = 0; i < failures.size(); ++i) {
    out << (i == 0 ? "" : ", ") << JsonQuote(failures[i]);
  }
  out << "]";
  key("aggregator") << aggregator.value_or("null");
  out << "\n}\n";
  return out.str();
}

}  // namespace tensorlightning
