// The model that tl-load's workers pretend to train.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_LAYOUT_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_LAYOUT_H_

#include <string_view>

#include "comm/layout.h"
#include "kernels/result.h"

namespace tensorlightning {

// "784", "100k", "25M", "1G": that many entries in a few layers, each a matrix
// and a small bias, as in a real model. "kernel:784x128,bias:128": just these.
Result<Layout> ParseLoadLayout(std::string_view text);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_LAYOUT_H_
