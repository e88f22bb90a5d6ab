// SPDX-License-Identifier: GPL-2.0-or-later
// The standard streams of a program that runs in a virtual node, and ours: pipes between them, or a terminal.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "node/init_messages.hpp"
#include "relay.hpp"

#include <array>
#include <vector>

#include <termios.h>

namespace singularity::spank {

// Of standard input; zeros: it is no terminal.
[[nodiscard]] node::WindowSize window_size();
// The program's terminal gets the size of ours, if we have one.
void pass_window_size(const UniqueFd &terminal);

// Keys go to the program as they are; everything is as before at the end.
class RawTerminal {
  public:
    RawTerminal();
    ~RawTerminal();
    RawTerminal(const RawTerminal &) = delete;
    RawTerminal &operator=(const RawTerminal &) = delete;
    RawTerminal(RawTerminal &&) = delete;
    RawTerminal &operator=(RawTerminal &&) = delete;

  private:
    termios before_{};
    bool changed_ = false;
};

// Between our standard streams and the program's.
struct Pipes {
    std::array<UniqueFd, 3> inner; // the program's ends
    std::vector<Pump> pumps;       // input first

    // Output and errors that go to one place here share one pipe: their order is kept.
    [[nodiscard]] static Expected<Pipes> make();
    // The program's terminal, of which this is the other end.
    [[nodiscard]] Expected<void> add_terminal(const UniqueFd &terminal);
    // To be sent to who starts the program; none, if it is on a terminal.
    [[nodiscard]] std::vector<int> given() const;
    void have_been_given();
    // The program has ended: what it has written before.
    [[nodiscard]] Expected<void> deliver();
    // The same without waiting for others that may still write there, and do so without end.
    [[nodiscard]] Expected<void> deliver_what_there_is();

  private:
    [[nodiscard]] Expected<void> add(int stream);
    [[nodiscard]] Expected<void> deliver_until(bool (*enough)(const Pump &));
};

} // namespace singularity::spank
