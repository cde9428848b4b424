#include "caffe_layers/net_in_making.h"

#include <dlfcn.h>

#include <string>
#include <utility>

#include "caffe_layers/ending.h"

namespace tensorlightning {
namespace {

constexpr char kInit[] = "_ZN5caffe3NetIfE4InitERKNS_12NetParameterE";

using Init = void (*)(caffe::Net<float>*, const caffe::NetParameter&);

thread_local NetInMaking current;

// In libcaffe itself, however that and we were loaded: not the next symbol of
// this name, which is in nobody's sight if we were loaded by dlopen().
Init OriginalInit() {
  Dl_info libcaffe{};
  void* const known = reinterpret_cast<void*>(&caffe::GlobalInit);
  if (dladdr(known, &libcaffe) == 0) EndWith("libcaffe is not loaded");
  void* const library = dlopen(libcaffe.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void* const init = library == nullptr ? nullptr : dlsym(library, kInit);
  if (init == nullptr) {
    EndWith(std::string(libcaffe.dli_fname) +
            " has no Net<float>::Init: this is another Caffe than the plugin "
            "was built for");
  }
  return reinterpret_cast<Init>(init);
}

}  // namespace

NetInMaking CurrentNetInMaking() { return current; }

}  // namespace tensorlightning

namespace caffe {

template <>
void Net<float>::Init(const NetParameter& param) {
  static const tensorlightning::Init original = tensorlightning::OriginalInit();
  const auto outer =
      std::exchange(tensorlightning::current, {.net = this, .param = &param});
  original(this, param);
  tensorlightning::current = outer;
}

}  // namespace caffe
