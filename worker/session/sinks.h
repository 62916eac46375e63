// Where a session's results and failures go. A stage knows its neighbours only through these.
#pragma once

#include <cstdint>

#include "dgr/v1/common.pb.h"
#include "dgr/v1/stage.pb.h"

namespace dgr {

// Towards the head: the previous stage's stream, or on the head the waiting generation. Any thread may call.
class ErrorSink {
 public:
  virtual ~ErrorSink() = default;
  virtual void SendError(const v1::SessionKey& session, const v1::StageError& error) = 0;
};

// From the tail to the head: a return link, or the generation itself where head and tail are one. Any thread may call.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  virtual void SendResult(v1::ReturnRequest message) = 0;
  virtual bool down() const = 0;
};

// A generation on the head: results arrive here, and what its client allows. Any thread may call.
class Inbox : public ResultSink {
 public:
  virtual void Grant(uint32_t tokens) = 0;
};

// To the next stage. Any thread may call.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void SendForward(v1::ForwardRequest message) = 0;
  virtual bool down() const = 0;
};

}  // namespace dgr
