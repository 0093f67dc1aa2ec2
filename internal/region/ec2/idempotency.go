// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

func requestHash(in any) string {
	b, err := json.Marshal(in)
	if err != nil {
		return err.Error()
	}

	sum := sha256.Sum256(b)

	return hex.EncodeToString(sum[:])
}

// idempotentResult returns the ids that the first request with this client token created, or nil if the token
// is new. It refuses a token that was used with other parameters.
func (s *Service) idempotentResult(op string, tok *string, in any) ([]string, error) {
	if str(tok) == "" {
		return nil, nil
	}

	known, ok := s.st.Tokens[op+"/"+str(tok)]
	if !ok {
		return nil, nil
	}

	if known.Sum != requestHash(in) {
		return nil, newErrorf(
			codeIdempotentParameterMismatch,
			"The client token %q was used before with other parameters",
			str(tok),
		)
	}

	return known.IDs, nil
}

// tokenRequest is a request of an operation with a client token; nil or empty: without one.
type tokenRequest struct {
	op    string
	token *string
	in    any
}

// repeatedAnswer returns the answer to a request whose client token was used before, or nil for a new one: with the resource as it
// is now or, once it is gone, the first answer, since EC2 does nothing further for a repeated request.
func repeatedAnswer[Resource, Out any](
	s *Service,
	r tokenRequest,
	resources map[string]*Resource,
	answer func(*Resource) *Out,
) (*Out, error) {
	ids, err := s.idempotentResult(r.op, r.token, r.in)
	if err != nil || len(ids) == 0 {
		return nil, err
	}

	if found := resources[ids[0]]; found != nil {
		return answer(found), nil
	}

	known := s.st.Tokens[r.op+"/"+str(r.token)]
	if len(known.Answer) == 0 { // of an older version of the region
		return nil, notFound(ids[0])
	}

	out := new(Out)
	if err := json.Unmarshal(known.Answer, out); err != nil {
		return nil, fmt.Errorf("read the answer of %s to client token %q: %w", r.op, str(r.token), err)
	}

	return out, nil
}

// firstAnswer stores the id of what a request created, and the answer, which it returns.
func firstAnswer[Out any](s *Service, r tokenRequest, id string, out *Out) (*Out, error) {
	if str(r.token) == "" {
		return out, nil
	}

	text, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("store the answer of %s to client token %q: %w", r.op, str(r.token), err)
	}

	s.saveIdempotentResult(r.op, r.token, r.in, id)
	known := s.st.Tokens[r.op+"/"+str(r.token)]
	known.Answer = text
	s.st.Tokens[r.op+"/"+str(r.token)] = known

	return out, nil
}

// saveIdempotentResult stores the ids that a request with a client token created. Tokens expire after a day,
// as in AWS.
func (s *Service) saveIdempotentResult(op string, tok *string, in any, ids ...string) {
	if str(tok) == "" {
		return
	}

	now := s.cfg.Now()
	maps.DeleteFunc(
		s.st.Tokens,
		func(_ string, t idempotencyToken) bool { return now.Sub(t.At) > 24*time.Hour },
	)

	s.st.Tokens[op+"/"+str(tok)] = idempotencyToken{Sum: requestHash(in), IDs: ids, At: now}
}

// idempotencyToken is a client token that was used.
type idempotencyToken struct {
	Sum string    // SHA-256 of the request's parameters
	IDs []string  // what the request created
	At  time.Time // when; the token expires a day later
	// Answer is the first answer; empty for operations that build it again.
	Answer json.RawMessage `json:",omitempty"`
}
