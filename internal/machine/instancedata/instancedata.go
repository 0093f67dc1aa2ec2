// SPDX-License-Identifier: Apache-2.0

// Package instancedata serves a part of the instance metadata to programs that the guard of the metadata service keeps away from it:
// which machine this is, and its network interfaces. It serves no credentials, no user data, no tags and no signed identity.
//
// Clients use it like the metadata service, with the variable AWS_EC2_METADATA_SERVICE_ENDPOINT. Anybody who reaches the address may
// read it, so it belongs on a loopback address.
package instancedata

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Address is where the agents of machines serve it.
const Address = "127.0.0.1:3989"

const (
	tokenPath    = "/latest/api/token" //nolint:gosec // a path
	identityPath = "/latest/dynamic/instance-identity/document"
	dataPath     = "/latest/meta-data/"

	// tokenLifeHeader has the life of a token in seconds, in requests and in answers.
	tokenLifeHeader = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds" //nolint:gosec // the name of a header
	// tokenLife is the longest life of a token that the metadata service gives, in seconds.
	tokenLife = "21600"
	// token is what clients get: requests need none, because nothing here is secret.
	token = "not-needed"

	// maxValue is more than the longest list of addresses, in bytes.
	maxValue = 1 << 20
)

// Source reads from the instance metadata service.
type Source interface {
	GetMetadata(context.Context, *imds.GetMetadataInput, ...func(*imds.Options)) (*imds.GetMetadataOutput, error)
}

// Identity is what the identity document of the machine says here.
type Identity struct {
	// Region and AvailabilityZone of the machine.
	Region           string `json:"region"`
	AvailabilityZone string `json:"availabilityZone"`
	// InstanceID and InstanceType of the machine.
	InstanceID   string `json:"instanceId"`
	InstanceType string `json:"instanceType"`
	// PrivateIP is the first address of the machine.
	PrivateIP string `json:"privateIp"`
}

// Handler serves the metadata. It is safe for concurrent use.
type Handler struct {
	Source   Source
	Identity Identity
	Log      *slog.Logger
}

// ServeHTTP implements [http.Handler]. What may not be read does not exist.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")

	switch {
	case r.Method == http.MethodPut && r.URL.Path == tokenPath:
		w.Header().Set(tokenLifeHeader, tokenLife)
		_, _ = io.WriteString(w, token) // who asked has gone
	case r.Method != http.MethodGet:
		http.Error(w, "the method must be GET", http.StatusMethodNotAllowed)
	case r.URL.Path == identityPath:
		_ = json.NewEncoder(w).Encode(h.Identity)
	default:
		h.serveValue(w, r)
	}
}

// serveValue answers with a value of the metadata service.
func (h Handler) serveValue(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, dataPath)
	if !ok || !isServed(path) {
		http.NotFound(w, r)
		return
	}

	value, err := h.read(r.Context(), path)
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && answer.HTTPStatusCode() == http.StatusNotFound {
		http.NotFound(w, r)
		return
	}

	if err != nil {
		h.Log.Warn("cannot read instance metadata for a program of this machine", slog.String("path", path), slog.Any("error", err))
		http.Error(w, "the metadata service does not answer", http.StatusBadGateway)

		return
	}

	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(value) //nolint:gosec // no page: the client is a program of this machine
}

func (h Handler) read(ctx context.Context, path string) ([]byte, error) {
	out, err := h.Source.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return nil, err
	}

	defer func() { _ = out.Content.Close() }()

	return io.ReadAll(io.LimitReader(out.Content, maxValue))
}

// isServed reports whether a path below meta-data is served: the facts of the machine, the list of its interfaces, the list of what is
// known of an interface, and each of these values.
func isServed(path string) bool {
	facts := []string{"instance-id", "instance-type", "local-ipv4", "mac", "placement/availability-zone", "placement/region"}

	return slices.Contains(facts, path) || interfacesPattern().MatchString(path)
}

func interfacesPattern() *regexp.Regexp {
	return regexp.MustCompile(`^network/interfaces/macs(?:/|/[0-9a-f:]{17}(?:/|/[a-z0-9-]+)?)?$`)
}
