// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
)

// AdminToken returns the bearer token of the administration endpoint. It is derived from the region's
// secret key, which only the region's owner can read, and is not valid for AWS calls.
func AdminToken(secretKey string) string {
	m := hmac.New(sha256.New, []byte(secretKey))
	m.Write([]byte("slipway region administrator"))
	return hex.EncodeToString(m.Sum(nil))
}

// AdminHandler returns the administration endpoint. It lists (GET), adds (POST of a [Rule]), and removes
// (DELETE) rules, and requires the token as bearer token.
func (e *Engine) AdminHandler(token string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(
		"GET /",
		func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, e.ListRules()) },
	)

	mux.HandleFunc(
		"DELETE /",
		func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, e.ClearRules()) },
	)

	mux.HandleFunc("POST /", func(w http.ResponseWriter, q *http.Request) {
		const maxBodyBytes = 1 << 16
		var r Rule
		dec := json.NewDecoder(http.MaxBytesReader(w, q.Body, maxBodyBytes))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&r); err != nil {
			http.Error(w, fmt.Sprintf("parse rule: %v", err), http.StatusBadRequest)
			return
		}

		r, err := e.AddRule(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}

		writeJSON(w, http.StatusCreated, r)
	})

	want := []byte("Bearer " + token)

	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !hmac.Equal([]byte(q.Header.Get("Authorization")), want) {
			http.Error(
				w,
				"missing or wrong token: only the region's owner may manage faults",
				http.StatusForbidden,
			)

			return
		}

		mux.ServeHTTP(w, q)
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
