#include "caffe_layers/ending.h"

#include <glog/logging.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace tensorlightning {
namespace {

void EndProcess(const std::string& reason) {
  google::FlushLogFiles(google::GLOG_INFO);
  std::fprintf(stderr, "tensorlightning: %s\n", reason.c_str());
  std::fflush(nullptr);
  // Not exit(): other threads of Caffe are in the middle of something.
  _exit(1);
}

std::atomic<Ending> g_ending{EndProcess};

}  // namespace

void EndWith(const std::string& reason) {
  g_ending.load()(reason);
  std::abort();  // It has promised not to return.
}

void SetEnding(Ending ending) { g_ending = ending; }

}  // namespace tensorlightning
