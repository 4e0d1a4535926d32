// The threads that run the steps of a pass together, and where they wait for each other.
//
// OpenMP would start and end a parallel region for each step, with system calls at every end: for a short text that takes as
// long as the steps themselves. So a pass is one region, in which every thread takes its share of each step.
#pragma once

#include <atomic>
#include <thread>

#include "interface.h"

// Where the threads of a pass meet after each step, and agree on its outcome.
class Meeting {
   public:
    // Wait until all `threads` have called; returns DONE if all of them came with that, else the outcome of one that did not.
    int settle(int outcome, int threads) {
        if (outcome != DONE) pending_.store(outcome, std::memory_order_relaxed);
        const unsigned number = number_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived_.store(0, std::memory_order_relaxed);
            // A thread that goes on may fail in the next step before another has read how this one ended.
            settled_.store(pending_.load(std::memory_order_relaxed), std::memory_order_relaxed);
            number_.store(number + 1, std::memory_order_release);
        } else {
            for (int spins = 0; number_.load(std::memory_order_acquire) == number; spins++) rest(spins);
        }
        return settled_.load(std::memory_order_relaxed);
    }

   private:
    // The others are nearly done. If not, the system has suspended one of them, perhaps for this thread.
    static void rest(int spins) {
        if (spins < 1 << 14)
            __builtin_ia32_pause();
        else
            std::this_thread::yield();
    }

    std::atomic<int> arrived_{0}, pending_{DONE}, settled_{DONE};
    std::atomic<unsigned> number_{0};
};

// One thread of those that run a pass, of whom the first does what is not shared.
class Member {
   public:
    Member(Meeting &meeting, int number, int threads) : meeting_(meeting), threads_(threads), leads(number == 0) {}

    int settle(int outcome) const { return meeting_.settle(outcome, threads_); }

   private:
    Meeting &meeting_;
    const int threads_;

   public:
    const bool leads;
};
