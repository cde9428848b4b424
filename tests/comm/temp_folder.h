// A folder that is removed, with all in it, when the test ends.
#ifndef TENSORLIGHTNING_TESTS_COMM_TEMP_FOLDER_H_
#define TENSORLIGHTNING_TESTS_COMM_TEMP_FOLDER_H_

#include <gtest/gtest.h>
#include <stdlib.h>  // mkdtemp

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace tensorlightning::testing {

class TempFolder {
 public:
  TempFolder() : path_(::testing::TempDir() + "/folder-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tensorlightning::testing

#endif  // TENSORLIGHTNING_TESTS_COMM_TEMP_FOLDER_H_
