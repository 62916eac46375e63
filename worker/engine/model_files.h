// The files that a model is mapped from, watched for change while they are in use.
//
// llama.cpp maps the weights and reads them whenever it computes: bytes that somebody writes into the files are computed with at
// once. And a page beyond the end of a file that has shrunk cannot be read at all: the kernel sends SIGBUS.
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dgr {

class ModelFiles {
 public:
  // All parts of the set whose first file is `first`; to be called before the model is loaded.
  // FAILED_PRECONDITION: a part is missing or cannot be opened.
  static absl::StatusOr<ModelFiles> Open(const std::string& first);

  ModelFiles(ModelFiles&& other) noexcept;
  ModelFiles& operator=(ModelFiles&&) = delete;
  ~ModelFiles();

  // DATA_LOSS with the file's name: a part is no longer the file that it was. write(2) moves the times of a file before its
  // bytes change, so that a result which was computed before this said OK holds none of them. What somebody writes through a
  // mapping of his own is seen when the kernel moves the times, at the latest when it writes the page back.
  absl::Status Check() const;

  // From now on SIGBUS ends the process with a line on stderr that names the file; to be called once the model is mapped.
  void NameInSigbus() const;

 private:
  struct Part {
    std::string path;
    int descriptor = -1;
    struct stat state = {};
  };
  ModelFiles() = default;

  std::vector<Part> parts_;
};

}  // namespace dgr
