#include "comm/transport/tls.h"

#include <unistd.h>

#include <boost/asio/ssl/context.hpp>
#include <cerrno>
#include <cstring>

#include "comm/transport/asio.h"

namespace tensorlightning {
namespace {

using asio::ssl::context;

Error CantUse(const std::string& what, const std::string& file,
              const SysError& error) {
  return {
      ErrorCode::kInvalidArgument,
      "the TLS " + what + " " + file + " can't be used: " + error.message()};
}

// OpenSSL would only say that something is wrong.
Status CheckReadable(const std::string& file) {
  if (::access(file.c_str(), R_OK) == 0) return Done{};
  return Error{
      ErrorCode::kInvalidArgument,
      "the TLS file " + file + " can't be read: " + std::strerror(errno)};
}

TlsContext Modern(context::method method) {
  auto tls = std::make_shared<context>(method);
  tls->set_options(context::default_workarounds | context::no_sslv2 |
                   context::no_sslv3 | context::no_tlsv1 | context::no_tlsv1_1 |
                   context::single_dh_use);
  return tls;
}

}  // namespace

Result<TlsContext> MakeServerTls(const std::string& certificate_file,
                                 const std::string& key_file) {
  for (const std::string& file : {certificate_file, key_file}) {
    const Status readable = CheckReadable(file);
    if (!readable.ok()) return readable.error();
  }
  TlsContext tls = Modern(context::tls_server);
  SysError error;
  tls->use_certificate_chain_file(certificate_file, error);
  if (error) return CantUse("certificate", certificate_file, error);
  tls->use_private_key_file(key_file, context::pem, error);
  if (error) return CantUse("key", key_file, error);
  if (SSL_CTX_check_private_key(tls->native_handle()) != 1) {
    return Error{
        ErrorCode::kInvalidArgument,
        "the TLS key " + key_file + " does not belong to " + certificate_file};
  }
  return tls;
}

Result<TlsContext> MakeClientTls(const std::string& authority_file) {
  const Status readable = CheckReadable(authority_file);
  if (!readable.ok()) return readable.error();
  TlsContext tls = Modern(context::tls_client);
  SysError error;
  tls->load_verify_file(authority_file, error);
  if (error) return CantUse("authority", authority_file, error);
  tls->set_verify_mode(asio::ssl::verify_peer);
  return tls;
}

}  // namespace tensorlightning
