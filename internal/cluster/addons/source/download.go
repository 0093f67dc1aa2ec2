// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// downloadTimeout is how long one download may take. A chart has a few hundred kilobytes.
const downloadTimeout = 2 * time.Minute

// download returns what an address has. The caller checks its hash.
func (r Reader) download(ctx context.Context, address string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("download %s: the address is not valid", withoutQuery(address))
	}

	client := http.Client{Transport: r.Transport}

	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", withoutQuery(address), withoutAddress(err))
	}

	defer func() { _ = resp.Body.Close() }()

	if resp.StatusCode != http.StatusOK {
		return nil, diag.WithHint(
			fmt.Errorf("download %s: the server answers %s", withoutQuery(address), resp.Status),
			"check the address, and that it can be read without credentials",
		)
	}

	text, err := readLimited(resp.Body, withoutQuery(address), limit)
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", withoutQuery(address), withoutAddress(err))
	}

	return text, nil
}

// withoutQuery returns an address as it is printed. A query may have a signature that grants access.
func withoutQuery(address string) string {
	before, _, _ := strings.Cut(address, "?")
	return before
}

// withoutAddress returns the cause of an error of net/http, which would repeat the address with its query.
func withoutAddress(err error) error {
	if wrapped, ok := err.(*url.Error); ok { //nolint:errorlint // only the outermost one has the address
		return wrapped.Err
	}

	return err
}
