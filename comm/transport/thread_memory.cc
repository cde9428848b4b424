#include "comm/transport/thread_memory.h"

#include <memory>
#include <vector>

namespace tensorlightning {

Workspace& ThreadWorkspace() {
  thread_local const auto workspace = std::make_unique<Workspace>();
  return *workspace;
}

std::span<std::byte> ThreadScratch(size_t bytes) {
  thread_local std::vector<std::byte> scratch;
  if (scratch.size() < bytes) scratch.resize(bytes);
  return std::span(scratch).first(bytes);
}

}  // namespace tensorlightning
