#include "schedule/engine_thread.h"

#include <utility>

namespace dgr {

EngineThread::EngineThread() : thread_([this] { Run(); }) {}

EngineThread::~EngineThread() {
  Stop();
  thread_.join();
}

void EngineThread::Post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

size_t EngineThread::depth() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

void EngineThread::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  changed_.notify_one();
}

void EngineThread::Run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace dgr
