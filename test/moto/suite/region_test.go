// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// resetPath is the path at which moto's tests reset the server between tests.
const resetPath = "/moto-api/reset"

// freshRegions serves regions in records mode: one for each region name that a signature is for. A reset
// discards all of them, so that each test begins with empty regions. It stands before the regions, which
// know nothing of it.
type freshRegions struct {
	tb testing.TB

	mu      sync.Mutex
	regions map[string]runningRegion // by name
}

type runningRegion struct {
	handler http.Handler
	stop    func()
}

// startFreshRegions serves regions until tb ends, and returns their URL.
func startFreshRegions(tb testing.TB) string {
	tb.Helper()
	f := &freshRegions{tb: tb, regions: map[string]runningRegion{}}
	web := httptest.NewServer(f)
	tb.Cleanup(func() {
		web.Close()
		f.reset()
	})

	return web.URL
}

// ServeHTTP implements http.Handler.
func (f *freshRegions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == resetPath {
		f.reset()
		w.WriteHeader(http.StatusOK)

		return
	}

	f.find(signedRegion(r)).ServeHTTP(w, r)
}

// reset stops all regions.
func (f *freshRegions) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, region := range f.regions {
		region.stop()
		delete(f.regions, name)
	}
}

// find returns the region with a name, and starts it if it does not run.
func (f *freshRegions) find(name string) http.Handler {
	f.mu.Lock()
	defer f.mu.Unlock()
	region, ok := f.regions[name]
	if !ok {
		started, stop := regiontest.StartStoppable(f.tb, regiontest.Options{
			InProcess:        true,
			RegionName:       name,
			Images:           motoImages(),
			PublicParameters: motoParameters(),
			TransitionDelay:  time.Millisecond,
		})
		region = runningRegion{started.Handler(), stop}
		f.regions[name] = region
	}

	return region.handler
}

// signedRegion returns the name of the region in the scope of a request's signature; us-east-1 without one.
func signedRegion(r *http.Request) string {
	scope := r.URL.Query().Get("X-Amz-Credential")
	if scope == "" {
		_, scope, _ = strings.Cut(r.Header.Get("Authorization"), "Credential=")
	}

	parts := strings.Split(scope, "/")
	if len(parts) < 4 || parts[2] == "" {
		return regiontest.RegionName
	}

	return parts[2]
}

// motoImages are the AMIs that moto's tests launch instances from; see tests/__init__.py of moto.
func motoImages() []ec2.Image {
	out := make([]ec2.Image, 0, 4)
	for _, id := range []string{"ami-12c6146b", "ami-03cf127a", "ami-fa7cdd89", "ami-f4cf1d8d"} {
		out = append(out, ec2.Image{
			ID:           id,
			Name:         "moto-" + id,
			Owner:        regiontest.AccountID,
			Architecture: "x86_64",
			RootDevice:   "/dev/sda1",
			RootSizeGiB:  8,
			Created:      time.Unix(0, 0).UTC(),
		})
	}

	return out
}

// motoParameters are the public parameters that moto's tests find the image of an instance with.
func motoParameters() map[string]string {
	const prefix = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-"

	return map[string]string{
		prefix + "6.1-x86_64":  "ami-12c6146b",
		prefix + "6.12-x86_64": "ami-12c6146b",
	}
}
