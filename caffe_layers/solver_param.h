// A solver's text as Caffe's message: without tensorlightning_param, and if
// that or one of our stages was there, with the type of the twin that
// exchanges.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_PARAM_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_PARAM_H_

#include <caffe/proto/caffe.pb.h>
#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "kernels/result.h"

namespace tensorlightning {

// Ends if it is none; `name` is the text's in messages: "name:12: ...".
void ParseSolver(const std::string& name, std::string_view text,
                 caffe::SolverParameter& param);

// Any message of Caffe's. The error names the text, line and column.
Status ParseText(const std::string& name, const std::string& text,
                 google::protobuf::Message& message);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_PARAM_H_
