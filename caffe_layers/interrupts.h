// Ctrl-C, for who waits where Caffe does not look: its solver asks between
// iterations, and while a layer waits there is no such moment.
//
//   const InterruptWatch watch;
//   while (!ready) {
//     if (watch.pressed()) return Error{...};
//     WaitABit();
//   }
//
// What the program itself does about Ctrl-C it goes on doing: this only looks
// on. In a program that leaves it to the system, or ignores it, nothing is
// changed. One watch at a time.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_INTERRUPTS_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_INTERRUPTS_H_

#include <csignal>

namespace tensorlightning {

class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Since it was made.
  bool pressed() const;

 private:
  bool watching_ = false;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_INTERRUPTS_H_
