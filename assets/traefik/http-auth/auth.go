// SPDX-License-Identifier: Apache-2.0

// Package auth is in the place of the library for basic and digest authentication that Traefik uses a fork of, which some Go module
// proxies do not serve. It refuses everybody. Without middlewares, which Ingresses alone cannot define, Traefik does not use it.
package auth

import "net/http"

// SecretProvider returns the secret of a user.
type SecretProvider func(user, realm string) string

// BasicAuth refuses everybody.
type BasicAuth struct {
	Realm   string
	Secrets SecretProvider
}

// RequireAuth answers that the request is refused.
func (*BasicAuth) RequireAuth(w http.ResponseWriter, r *http.Request) { refuse(w, r) }

// CheckSecret returns false.
func CheckSecret(string, string) bool { return false }

// DigestAuth refuses everybody.
type DigestAuth struct{}

// NewDigestAuthenticator returns an authenticator.
func NewDigestAuthenticator(string, SecretProvider) *DigestAuth { return &DigestAuth{} }

// CheckAuth returns no user.
func (*DigestAuth) CheckAuth(*http.Request) (string, *string) { return "", nil }

// RequireAuth answers that the request is refused.
func (*DigestAuth) RequireAuth(w http.ResponseWriter, r *http.Request) { refuse(w, r) }

// RequireAuthStale answers that the request is refused.
func (*DigestAuth) RequireAuthStale(w http.ResponseWriter, r *http.Request) { refuse(w, r) }

// DigestAuthParams returns nothing.
func DigestAuthParams(string) map[string]string { return nil }

func refuse(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this build of Traefik has no basic and digest authentication", http.StatusUnauthorized)
}
