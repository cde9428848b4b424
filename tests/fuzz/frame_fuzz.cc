// Any bytes at all, as a frame's header or as any message: an answer or an
// error, and what is taken is written again as the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "comm/crc32c.h"
#include "comm/frame.h"
#include "comm/layout.h"
#include "comm/messages.h"

namespace tensorlightning {
namespace {

using View = std::span<const std::byte>;

void Require(bool holds) {
  if (!holds) std::abort();
}

template <typename T>
bool Taken(const Result<T>& result) {
  if (!result.ok()) Require(!result.error().message.empty());
  return result.ok();
}

template <typename M>
void Check(View bytes) {
  const Result<M> message = M::Parse(bytes);
  if (Taken(message)) Require(std::ranges::equal(message->Encode(), bytes));
}

void CheckHeader(View bytes, bool sign) {
  FrameHeaderBytes header{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), header.size()),
              header.begin());
  if (sign) {
    // No fuzzer guesses a checksum.
    const uint32_t crc = Crc32c(std::span(header).first(32));
    std::memcpy(&header[32], &crc, sizeof(crc));
  }
  const Result<FrameHeader> parsed = ParseHeader(header);
  if (!Taken(parsed)) return;
  Require(IsFrameType(static_cast<uint8_t>(parsed->type)));
  Require(EncodeHeader(*parsed) == header);
}

void CheckLayout(View bytes) {
  const Result<Layout> layout = Layout::Parse(bytes);
  if (!Taken(layout)) return;
  Require(std::ranges::equal(layout->Serialise(), bytes));
  Require(layout->entries() > 0 && layout->entries() <= Layout::kMaxEntries);
}

void CheckJoin(View bytes) {
  Check<Join>(bytes);
  const Result<Join> join = Join::Parse(bytes);
  if (!join.ok()) return;
  Require(join->reply.Check(1000).ok());
  CheckLayout(join->layout);
}

// Control characters become spaces, the first time.
void CheckComplaint(View bytes) {
  const Result<Complaint> complaint = Complaint::Parse(bytes);
  if (!Taken(complaint)) return;
  for (const char c : complaint->message) {
    Require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  }
  const Bytes again = complaint->Encode();
  Require(again.size() == bytes.size());
  Require(*Complaint::Parse(again) == *complaint);
}

void CheckStanding(View bytes) {
  const Result<Standing> standing = Standing::Parse(bytes);
  if (!Taken(standing)) return;
  Require(
      std::ranges::equal(standing->Encode(), bytes.first(Standing::kBytes)));
}

}  // namespace

// The first byte says what the rest is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // A copy of exactly this size, so that the sanitizer sees any byte too far.
  const Bytes bytes(reinterpret_cast<const std::byte*>(data) + 1,
                    reinterpret_cast<const std::byte*>(data) + size);
  switch (data[0] % 10) {
    case 0:
    case 1:
      CheckHeader(bytes, data[0] % 10 == 1);
      break;
    case 2:
      Check<Hello>(bytes);
      break;
    case 3:
      Check<Challenge>(bytes);
      break;
    case 4:
      CheckJoin(bytes);
      break;
    case 5:
      Check<Joined>(bytes);
      break;
    case 6:
      CheckComplaint(bytes);
      break;
    case 7:
      CheckStanding(bytes);
      break;
    case 8:
      Check<Digest>(bytes);
      break;
    default:
      CheckLayout(bytes);
  }
  return 0;
}

}  // namespace tensorlightning
