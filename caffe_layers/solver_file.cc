// How Caffe reads solver files once the plugin is loaded: libcaffe's function
// of this name is hidden by the one here, for the stock binary too. It takes
// tensorlightning_param out of the text, and turns the solver into its twin.
#include <caffe/common.hpp>
#include <caffe/util/upgrade_proto.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "caffe_layers/ending.h"
#include "caffe_layers/solver_param.h"

namespace tensorlightning {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) EndWith(path + ": can't be read");
  return {std::istreambuf_iterator<char>(file), {}};
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
  if (UpgradeSnapshotPrefixProperty != nullptr) {
    UpgradeSnapshotPrefixProperty(param_file, param);
  }
}

}  // namespace caffe
