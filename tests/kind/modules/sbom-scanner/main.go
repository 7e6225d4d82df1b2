// An SBOM generator for BuildKit: the library of docker/buildkit-syft-scanner, whose module cannot be fetched here.
// https://github.com/moby/buildkit/blob/master/docs/attestations/sbom-protocol.md
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // databases of RPM, which Syft asks for

	"github.com/anchore/syft/syft"
	"github.com/anchore/syft/syft/format"
	"github.com/anchore/syft/syft/format/spdxjson"
)

type statement struct {
	Type          string          `json:"_type"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

func main() {
	// BUILDKIT_SCAN_SOURCE_EXTRAS is set where a Dockerfile has BUILDKIT_SBOM_SCAN_STAGE: the project's have not
	source := os.Getenv("BUILDKIT_SCAN_SOURCE")
	if err := scan(source, os.Getenv("BUILDKIT_SCAN_DESTINATION")); err != nil {
		log.Fatalf("%s: %v", source, err)
	}
}

func scan(folder, destination string) error {
	ctx := context.Background()
	source, err := syft.GetSource(ctx, folder, syft.DefaultGetSourceConfig().WithSources("dir"))
	if err != nil {
		return err
	}
	defer source.Close()
	found, err := syft.CreateSBOM(ctx, source, syft.DefaultCreateSBOMConfig())
	if err != nil {
		return err
	}
	encoder, err := spdxjson.NewFormatEncoderWithConfig(spdxjson.DefaultEncoderConfig())
	if err != nil {
		return err
	}
	document, err := format.Encode(*found, encoder)
	if err != nil {
		return err
	}
	written, err := json.Marshal(statement{"https://in-toto.io/Statement/v0.1", "https://spdx.dev/Document", document})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(destination, filepath.Base(folder)+".spdx.json"), written, 0o644)
}
