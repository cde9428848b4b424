#include "comm/aggregator/aggregator.h"

#include <utility>

#include "comm/aggregator/service.h"

namespace tensorlightning {

Result<std::unique_ptr<Aggregator>> Aggregator::Start(
    AggregatorOptions options) {
  auto service = std::make_shared<Service>(std::move(options));
  const Status started = service->Start();
  if (!started.ok()) return started.error();
  return std::unique_ptr<Aggregator>(new Aggregator(std::move(service)));
}

Aggregator::Aggregator(std::shared_ptr<Service> service)
    : service_(std::move(service)) {}

Aggregator::~Aggregator() { (void)Stop(); }

std::vector<Endpoint> Aggregator::endpoints() const {
  return service_->Endpoints();
}

AggregatorTotals Aggregator::totals() const { return service_->Totals(); }

std::string Aggregator::StatusJson() const { return service_->StatusJson(); }

Result<std::string> Aggregator::TakeSnapshot() {
  return service_->TakeSnapshot();
}

Status Aggregator::Stop() { return service_->Stop(); }

}  // namespace tensorlightning
