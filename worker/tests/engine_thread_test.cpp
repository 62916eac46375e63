#include "schedule/engine_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

namespace dgr {
namespace {

TEST(EngineThread, RunsJobsInOrderOnOneThread) {
  EngineThread engine;
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  std::promise<void> done;
  for (int i = 0; i < 100; ++i) {
    engine.Post([&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
      if (i == 99) done.set_value();
    });
  }
  done.get_future().wait();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
    EXPECT_EQ(threads[static_cast<size_t>(i)], threads.front());
    EXPECT_NE(threads[static_cast<size_t>(i)], std::this_thread::get_id());
  }
}

TEST(EngineThread, StopFinishesTheJobUnderWayAndDropsTheRest) {
  std::promise<void> started;
  std::promise<void> release;
  bool finished = false;
  bool dropped_ran = false;
  {
    EngineThread engine;
    engine.Post([&] {
      started.set_value();
      release.get_future().wait();
      finished = true;
    });
    engine.Post([&] { dropped_ran = true; });
    started.get_future().wait();
    EXPECT_EQ(engine.depth(), 1u);
    engine.Stop();
    engine.Post([&] { dropped_ran = true; });
    release.set_value();
  }
  EXPECT_TRUE(finished);
  EXPECT_FALSE(dropped_ran);
}

}  // namespace
}  // namespace dgr
