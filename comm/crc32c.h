// CRC32C (Castagnoli, reflected, polynomial 0x82f63b78), as in iSCSI: with the
// processor's instruction where there is one, three streams at a time.
//
//   Crc32c("123456789") == 0xe3069283
#ifndef TENSORLIGHTNING_COMM_CRC32C_H_
#define TENSORLIGHTNING_COMM_CRC32C_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorlightning {

// Of `bytes`, going on from the CRC of what came before them.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The same, always in software: what the other is tested against.
uint32_t Crc32cPortable(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_CRC32C_H_
