// Numbers as tl-load shows them to people.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_NUMBERS_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_NUMBERS_H_

#include <chrono>
#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>

namespace tensorlightning {

// 0 when there is nothing to divide by.
inline double Ratio(double a, double b) { return b == 0 ? 0 : a / b; }

// 3 digits or more, no exponent.
inline std::string Short(double value) {
  const int digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 4;
  std::ostringstream out;
  out << std::fixed << std::setprecision(value == 0 ? 0 : digits) << value;
  return out.str();
}

inline std::string Megabytes(uint64_t bytes) {
  return Short(static_cast<double>(bytes) / 1e6);
}

inline std::string Milliseconds(std::chrono::nanoseconds time) {
  return Short(std::chrono::duration<double, std::milli>(time).count());
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_NUMBERS_H_
