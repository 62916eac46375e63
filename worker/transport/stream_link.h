// A long-lived stream to another worker: messages go out in order from any thread, messages that come back go to a handler, and
// the end of the stream is noticed at once.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "dgr/v1/stage.grpc.pb.h"
#include "support/serve.h"

namespace dgr {

// Notices an unreachable or frozen peer within three seconds.
inline std::shared_ptr<grpc::Channel> DialStage(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);  // also bounds an attempt to connect
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 1500);
  arguments.SetInt("grpc.http2.ping_timeout_ms", 1500);  // newer gRPC goes by this one, a minute by default
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

template <typename Request, typename Response>
class StreamLink {
 public:
  using Stream = grpc::ClientReaderWriterInterface<Request, Response>;
  using Open = std::function<std::unique_ptr<Stream>(v1::Stage::Stub&, grpc::ClientContext*)>;

  // The handlers run on the link's own thread and must not destroy the link. `down` runs once, last.
  StreamLink(const std::string& address, const Open& open, std::function<void(const Response&)> received,
             std::function<void(absl::Status)> down)
      : stub_(v1::Stage::NewStub(DialStage(address))),
        stream_(open(*stub_, &context_)),
        received_(std::move(received)),
        down_(std::move(down)),
        writer_([this] { WriteAll(); }),
        reader_([this] { ReadAll(); }) {}

  // Drops what is still queued.
  ~StreamLink() {
    EndWriting();
    context_.TryCancel();
    reader_.join();
  }
  StreamLink(const StreamLink&) = delete;
  StreamLink& operator=(const StreamLink&) = delete;

  // Messages sent after the link is down are dropped; `down` has told, or will.
  void Send(Request message) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      queue_.push_back(std::move(message));
    }
    changed_.notify_one();
  }

  bool down() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  void WriteAll() {
    for (;;) {
      Request message;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ended_ || !queue_.empty(); });
        if (ended_) return;
        message = std::move(queue_.front());
        queue_.pop_front();
      }
      if (!stream_->Write(message)) {
        context_.TryCancel();  // wakes the reader, which tells
        return;
      }
    }
  }

  void ReadAll() {
    Response message;
    while (stream_->Read(&message)) received_(message);
    EndWriting();
    writer_.join();  // Finish must not overlap a write
    const grpc::Status status = stream_->Finish();
    down_(absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message()));
  }

  void EndWriting() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      queue_.clear();
    }
    changed_.notify_all();
  }

  grpc::ClientContext context_;
  std::unique_ptr<v1::Stage::Stub> stub_;
  std::unique_ptr<Stream> stream_;
  const std::function<void(const Response&)> received_;
  const std::function<void(absl::Status)> down_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> queue_;
  bool ended_ = false;

  std::thread writer_;
  std::thread reader_;
};

}  // namespace dgr
