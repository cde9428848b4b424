// How Caffe reads solver files once the plugin is loaded: libcaffe's function
// of this name is hidden by the one here, for the stock binary too. It takes
// tensorlightning_param out of the text, and turns the solver into its twin.
#include <caffe/common.hpp>
#include <caffe/util/upgrade_proto.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "caffe_layers/ending.h"
#include "caffe_layers/solver_param.h"
#include "caffe_layers/twins.h"
#include "comm/worker/worker_options.h"

namespace tensorlightning {
namespace {

std::string ReadFile(const std::string& path) {
  if (std::filesystem::is_directory(path)) EndWith(path + ": is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) EndWith(path + ": can't be read: " + std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), {}};
}

// Several workers were started, and this file does not make them a team: a net
// with ElasticExchange does, but most often the line was forgotten.
void WarnIfAlone(const std::string& path, const caffe::SolverParameter& param) {
  const Result<WorkerOptions> told = WorkerOptions::Parse("");
  if (!told.ok() || told->size < 2) return;
  if (param.type().starts_with(TwinOf(""))) return;
  std::fprintf(stderr,
               "tensorlightning: %s has no tensorlightning_param { }: %u "
               "workers train without each other, and write to the same "
               "snapshot_prefix\n",
               path.c_str(), told->size);
}

}  // namespace
}  // namespace tensorlightning

namespace caffe {

// Of libcaffe, though in none of its headers; older ones don't have it.
__attribute__((weak)) void UpgradeSnapshotPrefixProperty(
    const string& file, SolverParameter* param);

void ReadSolverParamsFromTextFileOrDie(const string& param_file,
                                       SolverParameter* param) {
  tensorlightning::ParseSolver(param_file,
                               tensorlightning::ReadFile(param_file), *param);
  tensorlightning::WarnIfAlone(param_file, *param);
  if (UpgradeSnapshotPrefixProperty != nullptr) {
    UpgradeSnapshotPrefixProperty(param_file, param);
  }
}

}  // namespace caffe
