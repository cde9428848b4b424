// Writes a JSON object to a stream, one member after another.
//
//   std::ostringstream out;
//   {
//     JsonObject all(out);
//     all.Add("live", 3);
//     all.Add("job", job);
//   }  // The brace is closed here.
#ifndef TENSORLIGHTNING_COMM_JSON_H_
#define TENSORLIGHTNING_COMM_JSON_H_

#include <concepts>
#include <ostream>
#include <string_view>

#include "comm/log.h"

namespace tensorlightning {

class JsonObject {
 public:
  explicit JsonObject(std::ostream& out) : out_(out) { out_ << '{'; }
  ~JsonObject() { out_ << '}'; }
  JsonObject(const JsonObject&) = delete;
  JsonObject& operator=(const JsonObject&) = delete;

  // For values of other kinds: the caller writes what follows the name.
  std::ostream& Key(std::string_view name) {
    if (!first_) out_ << ',';
    first_ = false;
    return out_ << JsonQuote(name) << ':';
  }
  template <std::same_as<bool> T>
  void Add(std::string_view name, T value) {
    Key(name) << (value ? "true" : "false");
  }
  template <typename T>
  requires(std::integral<T> && !std::same_as<T, bool>)  //
      void Add(std::string_view name, T value) {
    Key(name) << value;
  }
  // Finite, or it is no JSON.
  void Add(std::string_view name, double value) { Key(name) << value; }
  void Add(std::string_view name, std::string_view value) {
    Key(name) << JsonQuote(value);
  }
  void Add(std::string_view name, const char* value) {
    Add(name, std::string_view(value));
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_JSON_H_
