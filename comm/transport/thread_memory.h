// Memory that kernels work in, one for each thread.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_THREAD_MEMORY_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_THREAD_MEMORY_H_

#include <cstddef>
#include <span>

#include "kernels/workspace.h"

namespace tensorlightning {

// The calling thread's own, made on first use.
Workspace& ThreadWorkspace();
// For a code that is about to be copied to where it stays.
std::span<std::byte> ThreadScratch(size_t bytes);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_THREAD_MEMORY_H_
