// TLS, when certificates are given: OpenSSL through Asio.
//
// The aggregator shows a certificate; workers check it against an authority
// (a file of certificates; a self-signed one is its own authority) and the name
// or address they connected to. Who the *worker* is, the handshake over the
// shared secret says.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_TLS_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_TLS_H_

#include <memory>
#include <string>

#include "kernels/result.h"

namespace boost::asio::ssl {
class context;
}  // namespace boost::asio::ssl

namespace tensorlightning {

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// PEM files: a certificate (chain) and its key. TLS 1.2 or newer.
Result<TlsContext> MakeServerTls(const std::string& certificate_file,
                                 const std::string& key_file);
Result<TlsContext> MakeClientTls(const std::string& authority_file);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_TLS_H_
