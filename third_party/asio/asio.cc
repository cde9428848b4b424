#include <utility>  // Asio 1.74 forgets it.

#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
