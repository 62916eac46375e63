// The one thread that touches the engine. Everything else hands it work through a queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace dgr {

class EngineThread {
 public:
  using Job = std::function<void()>;

  EngineThread();
  // Finishes the job under way and drops the rest.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // Jobs run in the order they were posted. Jobs of one session therefore keep their order, and a session's state is freed
  // after its last chunk. After Stop jobs are dropped.
  void Post(Job job);

  // Jobs that wait; an indication of load.
  size_t depth() const;

  void Stop();

 private:
  void Run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dgr
