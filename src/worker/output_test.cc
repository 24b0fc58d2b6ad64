#include "worker/output.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/stack.h"

namespace manta::worker {
namespace {

struct Written {
  std::string out;
  std::string err;
  int status = 0;
};

std::string ReadAll(int fd) {
  std::string text;
  char piece[4096];
  for (ssize_t n = 0; (n = read(fd, piece, sizeof piece)) > 0;) text.append(piece, static_cast<std::size_t>(n));
  close(fd);
  return text;
}

// Runs it in a child with labelled output, as a worker would.
Written InWorker(const std::function<void()>& body) {
  int out[2];
  int err[2];
  EXPECT_EQ(pipe(out), 0);
  EXPECT_EQ(pipe(err), 0);
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
    InstallOutput();
    body();
    FlushAllOutput();
    _exit(0);
  }
  close(out[1]);
  close(err[1]);
  Written written;
  std::thread reader([&] { written.err = ReadAll(err[0]); });
  written.out = ReadAll(out[0]);
  reader.join();
  waitpid(pid, &written.status, 0);
  return written;
}

TEST(Output, PrintfAndCoutKeepTheirOrderUnderOneLabel) {
  const Written written = InWorker([] {
    SetLabel("square");
    std::printf("one ");
    std::cout << "two " << 3 << std::flush;
    std::puts(" four");
    std::cout << 'f' << "ive" << std::endl;
    putchar('6');
    fputs("\n", stdout);
  });
  EXPECT_EQ(written.out, "\x01square\none two 3 four\nfive\n6\n");
  EXPECT_EQ(written.err, "");
}

TEST(Output, ALabelIsWrittenOnlyWhenItChanges) {
  const Written written = InWorker([] {
    SetLabel("a");
    std::cout << "1\n2\n";
    SetLabel("b");
    SetLabel("a");
    std::printf("3\n");
    SetLabel("b");
    std::printf("4\n");
    std::cerr << "e" << 1 << "\n";
    std::clog << "e2\n";
  });
  EXPECT_EQ(written.out,
            "\x01"
            "a\n1\n2\n3\n\x01"
            "b\n4\n");
  EXPECT_EQ(written.err,
            "\x01"
            "b\ne1\ne2\n");
}

TEST(Output, AnUnfinishedLineIsEndedByFlushAndByTheNextLabel) {
  const Written written = InWorker([] {
    SetLabel("a");
    std::printf("x");
    FlushOutput();
    FlushOutput();
    std::printf("y");
    SetLabel("b");
    std::printf("z");
  });
  EXPECT_EQ(written.out,
            "\x01"
            "a\nx\ny\n\x01"
            "b\nz\n");
}

TEST(Output, AnUnfinishedLineIsNotLostAtExit) {
  const Written written = InWorker([] {
    SetLabel("a");
    std::thread([] { std::printf("thread"); }).join();
    std::cerr << "half";
    std::printf("line");
    std::exit(0);
  });
  EXPECT_EQ(written.out,
            "\x01"
            "a\nthread\nline\n");
  EXPECT_EQ(written.err,
            "\x01"
            "a\nhalf\n");
}

TEST(Output, ThreadsDoNotTearLinesAndEachLineHasItsLabel) {
  static const char* const kLabels[] = {"f0", "f1", "f2", "f3"};
  const Written written = InWorker([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        SetLabel(kLabels[t]);
        for (int i = 0; i < 500; ++i) {
          if (i % 2 == 0) {
            std::printf("%d ", t);
            std::cout << "line " << i << "\n";
          } else {
            std::cout << t << " line ";
            std::printf("%d\n", i);
          }
          std::cerr << t << " err " << i << std::endl;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  for (const auto& [text, word] : {std::pair(written.out, " line "), std::pair(written.err, " err ")}) {
    std::map<std::string, int> seen;
    std::string label;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line[0] == '\x01') {
        label = line.substr(1);
      } else {
        ++seen[label + "|" + line];
      }
    }
    EXPECT_EQ(seen.size(), 2000U);
    for (int t = 0; t < 4; ++t) {
      for (int i = 0; i < 500; ++i) {
        EXPECT_EQ(seen[std::string("f") + std::to_string(t) + "|" + std::to_string(t) + word + std::to_string(i)], 1);
      }
    }
  }
}

TEST(Output, AThreadOfTheTaskWritesUnderItsLabel) {
  const Written written = InWorker([] {
    SetLabel("task");
    std::thread([] { std::printf("mine\n"); }).join();
  });
  EXPECT_EQ(written.out, "\x01task\nmine\n");
}

TEST(Output, AnOverlongLineIsWrittenInPiecesAndNotContinuedByAnother) {
  const std::string piece(40000, 'x');
  const Written written = InWorker([&] {
    SetLabel("a");
    std::cout << piece << piece << "end";
    std::thread([] { std::printf("other\n"); }).join();
    std::cout << piece << piece << "end\n";
    std::cout << piece << piece;
    FlushOutput();
    std::cout << "next\n";
  });
  EXPECT_EQ(written.out,
            "\x01"
            "a\n" +
                piece + piece + "\nother\nend" + piece + piece + "end\n" + piece + piece + "\nnext\n");
}

TEST(Output, AStackFromASignalHandlerComesUnderTheTasksLabelAfterItsHalfLine) {
  const Written written = InWorker([] {
    InstallCrashHandlers();
    SetLabel("f");
    std::printf("half");
    raise(SIGQUIT);
    std::printf(" other\n");
  });
  EXPECT_EQ(written.out.substr(0, 8),
            "\x01"
            "f\nhalf\n");
  EXPECT_EQ(written.out.substr(8),
            "\x01"
            "f\n other\n");
  EXPECT_EQ(written.err.substr(0, 24),
            "\x01"
            "f\n*** stack of process ");
}

TEST(Output, RawWritesAndUsersChildrenGoAlong) {
  const Written written = InWorker([] {
    SetLabel("a");
    std::printf("1\n");
    (void)!write(1, "raw\n", 4);
    (void)!std::system("echo child");
    std::ios_base::sync_with_stdio(false);
    std::cout << "2\n";
    EXPECT_EQ(fileno(stdout), 1);
  });
  EXPECT_EQ(written.out,
            "\x01"
            "a\n1\nraw\nchild\n2\n");
}

}  // namespace
}  // namespace manta::worker
