// SPDX-License-Identifier: Apache-2.0

package region

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/image"
)

// TestPublicImages: the region has the images under the names and parameters of their publishers.
func TestPublicImages(t *testing.T) {
	names := map[string]string{}
	for _, i := range publicImages() {
		names[i.ID] = i.Owner + "/" + i.Name
	}
	for parameter, want := range map[string]string{
		"/aws/service/debian/release/12/latest/amd64":                                        "136693071363/debian-12-amd64-",
		"/aws/service/debian/release/12/latest/arm64":                                        "136693071363/debian-12-arm64-",
		"/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id": "099720109477/ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-",
		"/aws/service/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id": "099720109477/ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server-",
	} {
		if got := names[publicParameters()[parameter]]; !strings.HasPrefix(got, want) {
			t.Errorf("%s is of %q, want %s…", parameter, got, want)
		}
	}
}

// TestUnbootableImages: an image that is not built, and one of another architecture, say why no machine boots from them.
func TestUnbootableImages(t *testing.T) {
	p := regionPaths{t.TempDir()}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if got := p.unbootableReason(image.ComputeID(image.Ubuntu2404, other)); !strings.Contains(got, "programs for "+other) {
		t.Errorf("another architecture: %q", got)
	}
	id := image.ComputeID(image.Ubuntu2404, runtime.GOARCH)
	if got := p.unbootableReason(id); !strings.Contains(got, "slipway region image --os ubuntu-24.04") {
		t.Errorf("not built: %q", got)
	}
	if err := os.MkdirAll(filepath.Join(p.imageDir(), id), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.imageDir(), id, "image.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.unbootableReason(id); got != "" {
		t.Errorf("built: %q", got)
	}
	if got := p.unbootableReason("ami-0123456789abcdef0"); got != "" {
		t.Errorf("unknown: %q", got)
	}
}
