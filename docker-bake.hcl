# The images of a release; `docker buildx bake --print` shows what is built. The release workflow builds and pushes them
# with this file alone, and so does its test, with base images of the machine in a docker-bake.override.json.
variable "REGISTRY" { default = "ghcr.io/mailboat-dev" }
variable "VERSION" { default = "" }
variable "REVISION" { default = "" }

group "default" { targets = ["mailboat", "mailboat-spark", "mailboat-operator"] }

target "image" {
  platforms = ["linux/amd64", "linux/arm64"]
  args      = { VERSION = VERSION, REVISION = REVISION }
  attest    = ["type=sbom", "type=provenance,mode=max"]
}

target "mailboat" {
  inherits   = ["image"]
  dockerfile = "agent_image/Dockerfile"
  target     = "agent"
  tags       = ["${REGISTRY}/mailboat:${VERSION}"]
}

target "mailboat-spark" {
  inherits   = ["image"]
  dockerfile = "agent_image/Dockerfile"
  target     = "spark"
  tags       = ["${REGISTRY}/mailboat-spark:${VERSION}"]
}

target "mailboat-operator" {
  inherits   = ["image"]
  dockerfile = "operator/Dockerfile"
  contexts   = { mailboat = "target:mailboat" } # the same layers, which a node keeps once
  tags       = ["${REGISTRY}/mailboat-operator:${VERSION}"]
}
