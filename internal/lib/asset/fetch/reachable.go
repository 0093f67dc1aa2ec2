// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// reachTimeout is the time in which a reachable host answers.
const reachTimeout = 5 * time.Second

// CheckReachable asks for the first file of a catalogue, without its content. The error says why it cannot be
// downloaded, such as a network without access to the internet.
func CheckReachable(ctx context.Context, transport http.RoundTripper, c asset.Catalog, arch string) error {
	selected, err := selectAssets(c, arch, nil)
	if err != nil {
		return err
	}

	first := selected.Files[0]
	file, err := c.File(first.Name, first.Version, arch)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, file.URL, nil)
	if err != nil {
		return err
	}

	client := http.Client{Transport: transport}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}

	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HEAD %s: %s", file.URL, resp.Status)
	}

	return nil
}
