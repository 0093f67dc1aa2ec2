// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// TokenReviewPath is the URL path at which kube-apiserver asks whose a token is.
const TokenReviewPath = "/v1/token-review"

// APIServerClient is the common name of kube-apiserver's client certificate. Only its holder may review tokens.
const APIServerClient = "kube-apiserver-kubelet-client"

// tokenPrefix tells tokens of this kind from others, such as expired ones of service accounts.
const tokenPrefix = "slipway-v1."

// clusterHeader is the signed header of a user's proof. It has the id of the cluster, so that no cluster can use a token
// that another one has received.
const clusterHeader = "X-Slipway-Cluster-Id"

// CreateToken returns a bearer token for the API of the cluster with this id, and when it expires. It is a proof of
// the signer's identity, which a minute later is worth nothing.
func (s Signer) CreateToken(ctx context.Context, clusterID string) (string, time.Time, error) {
	expires := s.Now().Add(proofTTL)
	query, err := s.sign(ctx, signedHeader{clusterHeader, clusterID})
	if err != nil {
		return "", time.Time{}, err
	}

	return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(query)), expires, nil
}

// tokenReview is the part of Kubernetes' TokenReview that is used here.
type tokenReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token string `json:"token,omitempty"`
	} `json:"spec"`
	Status tokenStatus `json:"status"`
}

type tokenStatus struct {
	Authenticated bool       `json:"authenticated"`
	User          *tokenUser `json:"user,omitempty"`
	Error         string     `json:"error,omitempty"`
}

type tokenUser struct {
	Username string   `json:"username"`
	UID      string   `json:"uid,omitempty"`
	Groups   []string `json:"groups"`
}

// serveTokenReview answers kube-apiserver. A token that is not valid gets an answer without a user; 503 means that it
// could not be checked, and is asked again.
func (s *Server) serveTokenReview(w http.ResponseWriter, r *http.Request) {
	if !isAPIServer(r) {
		http.Error(w, "a token review needs the client certificate of kube-apiserver", http.StatusForbidden)
		return
	}

	var review tokenReview
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&review); err != nil {
		http.Error(w, "body is not a TokenReview", http.StatusBadRequest)
		return
	}

	user, err := s.reviewToken(r.Context(), review.Spec.Token)
	if no, ok := errors.AsType[refusal](err); ok {
		s.Log.Debug("token refused", slog.String("reason", no.reason)) // strangers can send any number
		review.Status = tokenStatus{Error: no.reason}
	} else if err != nil {
		s.Log.Error("token review failed", slog.Any("error", err))
		http.Error(w, "try again", http.StatusServiceUnavailable)

		return
	}

	if user != nil {
		s.Log.Info("token accepted", slog.String("user", user.Username))
		review.Status = tokenStatus{Authenticated: true, User: user}
	}

	review.Spec.Token = ""
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// isAPIServer reports whether the client has the certificate of kube-apiserver, which TLS has verified.
func isAPIServer(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 &&
		r.TLS.VerifiedChains[0][0].Subject.CommonName == APIServerClient
}

// reviewToken returns whose a token is; nil for a token of another kind. The error is a refusal if the token is
// not valid, or if the manifest does not name its signer.
func (s *Server) reviewToken(ctx context.Context, token string) (*tokenUser, error) {
	encoded, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok {
		return nil, nil //nolint:nilnil // no user, and nothing wrong
	}

	if s.ClusterID == "" {
		return nil, refusal{http.StatusForbidden, "the cluster has no id"}
	}

	query, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, refusal{http.StatusForbidden, "the token is not valid base64"}
	}

	proof, err := checkProof(string(query), clusterHeader, s.Now())
	if err != nil {
		return nil, refusal{http.StatusForbidden, err.Error()}
	}

	if !s.reviews.take(s.Now()) {
		return nil, errors.New("too many token reviews")
	}

	who, err := s.callSTS(ctx, proof, signedHeader{clusterHeader, s.ClusterID})
	if err != nil {
		return nil, err
	}

	principal, err := parsePrincipal(who.ARN)
	if err != nil {
		return nil, refusal{http.StatusForbidden, err.Error()}
	}

	for _, u := range s.Users {
		if named, err := parsePrincipal(u.ARN); err == nil && named == principal {
			return &tokenUser{Username: who.ARN, UID: who.UserID, Groups: u.Groups}, nil
		}
	}

	s.Log.Info("the signer of a token is no user", slog.String("arn", who.ARN))

	return nil, refusal{http.StatusForbidden, who.ARN + " is no user of cluster " + s.Cluster}
}

// principal is an IAM role or user. Their names are unique in an account, also in different paths, and STS does not
// say the path of a role.
type principal struct {
	partition, account string
	kind               string // role or user
	name               string
}

// parsePrincipal returns the principal of an ARN of IAM, or of STS for a session of a role. The account's root and
// federated users are none.
func parsePrincipal(arn string) (principal, error) {
	fields := strings.Split(arn, ":")
	if len(fields) != 6 || fields[0] != "arn" || fields[3] != "" || fields[4] == "" {
		return principal{}, fmt.Errorf("%s is not the ARN of an IAM role or user", arn)
	}

	p := principal{partition: fields[1], account: fields[4]}
	kind, path, _ := strings.Cut(fields[5], "/")

	switch service := fields[2]; service + " " + kind {
	case "sts assumed-role":
		p.kind = "role"
		p.name, _, _ = strings.Cut(path, "/") // the session follows
	case "iam role", "iam user":
		p.kind = kind
		p.name = path[strings.LastIndex(path, "/")+1:]
	}

	if p.name == "" {
		return principal{}, fmt.Errorf("%s is not the ARN of an IAM role or user", arn)
	}

	return p, nil
}

// reviewLimit limits the token reviews that call STS. They all come from the API server, so there is one limit for all
// users. The zero value is ready to use. It is safe for concurrent use.
type reviewLimit struct {
	mu     sync.Mutex
	bucket tokenBucket
}

// take reports whether another review may call STS.
func (l *reviewLimit) take(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.bucket.take(bucketSize{requestBurst, requestRate}, now)
}
