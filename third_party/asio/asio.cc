// Asio 1.74 needs <utility>, and forgets it.
// clang-format off
#include <utility>
// clang-format on

#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
