// SPDX-License-Identifier: Apache-2.0

package assettest

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// NewImage returns a new image with random layers, for Linux on an architecture.
func NewImage(tb testing.TB, arch string) v1.Image {
	tb.Helper()
	image, err := random.Image(1000, 2)
	if err != nil {
		tb.Fatal(err)
	}

	config, err := image.ConfigFile()
	if err != nil {
		tb.Fatal(err)
	}

	config = config.DeepCopy()
	config.OS = "linux"
	config.Architecture = arch
	if image, err = mutate.ConfigFile(image, config); err != nil {
		tb.Fatal(err)
	}

	return image
}
